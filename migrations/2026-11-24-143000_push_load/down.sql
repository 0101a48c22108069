DROP TABLE pushed_loads;
