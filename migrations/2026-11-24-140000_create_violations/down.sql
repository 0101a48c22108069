DROP TABLE violations;
