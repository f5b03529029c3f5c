-- Finds due deliveries without reading their bodies.

DROP INDEX inbox_new;
CREATE INDEX inbox_due ON inbox (id, not_before) WHERE state = 'new';
