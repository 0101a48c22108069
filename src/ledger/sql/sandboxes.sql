-- Which of these tenants are sandboxes.
SELECT id AS tenant FROM tenants WHERE id = ANY($1) AND (definition ->> 'sandbox')::boolean
