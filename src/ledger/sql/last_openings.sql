SELECT DISTINCT ON (chain) chain, number, hash, kept_rows, kept_hash
FROM opening_chains
ORDER BY chain, opening DESC
