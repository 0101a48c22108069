UPDATE reconciliations SET differences = replace(differences::text,
    format('"subject": %s', jsonb_build_array($2::text, $3::text)),
    format('"subject": %s', jsonb_build_array($2::text, $4::text)))::jsonb
WHERE tenant = $1 AND position(format('"subject": %s', jsonb_build_array($2::text, $3::text)) IN differences::text) > 0
