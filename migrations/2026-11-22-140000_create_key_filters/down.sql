DROP TABLE key_seal, key_filters, key_stretches, booked_keys;
