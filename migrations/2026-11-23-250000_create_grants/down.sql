DROP TABLE untold_capacities, grants;
