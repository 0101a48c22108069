DROP TYPE booked_reservation;
DROP TYPE booked_entry;
