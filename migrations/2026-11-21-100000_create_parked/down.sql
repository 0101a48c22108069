DROP TABLE parked;
