DROP TABLE losses, epoch_ends;
