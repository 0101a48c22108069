SELECT chain, max(number) AS number FROM batches GROUP BY chain
