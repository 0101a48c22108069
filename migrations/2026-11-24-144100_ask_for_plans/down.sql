DROP TABLE raised_quotas, upgrade_requests;
