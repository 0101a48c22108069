DROP TABLE supplier_matches;
DROP TABLE supplier_bills;
