DROP TABLE damages;
