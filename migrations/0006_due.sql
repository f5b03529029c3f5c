-- What is due is found without a look at the bodies, however many deliveries wait.

DROP INDEX inbox_new;
CREATE INDEX inbox_due ON inbox (id, not_before) WHERE state = 'new';
