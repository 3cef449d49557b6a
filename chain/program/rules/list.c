// Lists of a state, and searches in them: core/coordinator/idset.go and built-in functions of Go.

#include "coordinator.h"

// list_delete removes an element and keeps the order of the others. It zeroes the vacated element.
void list_delete(void *list, uint64_t element, uint32_t *count, uint32_t i) {
	uint8_t *at = (uint8_t *)list + i * element;
	uint64_t behind = *count - i - 1;
	host_move(at, at + element, behind * element);
	host_zero(at + behind * element, element);
	--*count;
}

void client_add(struct clients *c, const struct client *added) { c->list[c->count++] = *added; }

void client_delete(struct clients *c, uint32_t i) { list_delete(c->list, sizeof(struct client), &c->count, i); }

// client_forget_report ports Client.forgetReport.
void client_forget_report(struct client *c) {
	c->report_step = 0;
	c->held_out = 0;
	host_zero(&c->report, sizeof c->report);
}

// index_of ports indexOf. It returns -1 for a key that is not in the list.
int32_t index_of(const struct clients *c, const struct key *id) {
	for (uint32_t i = 0; i < c->count; i++)
		if (key_equal(&c->list[i].id, id)) return (int32_t)i;
	return -1;
}

int32_t index_of_key(const struct key *keys, uint32_t count, const struct key *id) {
	for (uint32_t i = 0; i < count; i++)
		if (key_equal(&keys[i], id)) return (int32_t)i;
	return -1;
}

enum { PLACES = 1024 }; // of an id_set

// Go's idSet hashes with a constant, so keys chosen to collide make it slow. Here a slow lookup
// would exceed the cost limit. So the factor is random, and is drawn when the keys can no longer
// change.
static uint64_t id_set_place(const struct id_set *set, const struct key *id) {
	uint64_t hash = (id->word[0] ^ id->word[1] ^ id->word[2] ^ id->word[3]) * set->factor;
	return ((hash ^ hash >> 29) * 0x9e3779b97f4a7c15) >> 54;
}

// new_id_set ports newIDSet. Only one such set may exist at a time, because all sets use the same
// scratch.
void new_id_set(struct id_set *set, struct client *list, uint32_t count, uint64_t seed) {
	set->list = list;
	set->places = host_scratch();
	set->factor = seed | 1;
	host_zero(set->places, PLACES * sizeof *set->places);
	for (uint32_t i = 0; i < count; i++) {
		uint64_t place = id_set_place(set, &list[i].id);
		while (set->places[place]) place = (place + 1) % PLACES;
		set->places[place] = (uint16_t)(i + 1);
	}
}

// id_set_find returns the client with the key, or NULL.
struct client *id_set_find(const struct id_set *set, const struct key *id) {
	for (uint64_t place = id_set_place(set, id); set->places[place]; place = (place + 1) % PLACES) {
		struct client *client = &set->list[set->places[place] - 1];
		if (key_equal(&client->id, id)) return client;
	}
	return NULL;
}

// lookup_next returns the next client if it has the key, and otherwise NULL.
struct client *lookup_next(struct lookup *l, const struct key *id) {
	return l->next < l->count && key_equal(&l->list[l->next].id, id) ? &l->list[l->next++] : NULL;
}

// lookup_find ports lookup.find.
struct client *lookup_find(struct lookup *l, const struct key *id) {
	for (uint32_t tries = l->count; tries > 0; tries--) {
		if (l->next == l->count) l->next = 0;
		struct client *client = &l->list[l->next++];
		if (key_equal(&client->id, id)) return client;
	}
	return NULL;
}
