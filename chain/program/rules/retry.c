// Ports core/coordinator/retry.go.

#include "coordinator.h"

static uint64_t stretch_len(const struct stretch *t) { return t->end - t->start; }

// round_next_data ports Round.NextData.
static uint64_t round_next_data(const struct round *r) {
	uint64_t next = r->data_index + r->batch_size;
	for (uint32_t i = 0; i < r->retry_count; i++) next -= stretch_len(&r->retries[i]);
	return next;
}

// state_retries ports State.retries. It writes to a zeroed round.
void state_retries(const struct state *s, struct round *round) {
	if (!s->config.retry_lost) return;
	uint64_t room = round->batch_size / 2;
	for (uint32_t i = 0; i < s->lost_count && room > 0 && round->retry_count < MAX_RETRIES; i++) {
		struct stretch *t = &round->retries[round->retry_count++];
		*t = s->lost[i];
		if (stretch_len(t) > room) t->end = t->start + room;
		room -= stretch_len(t);
	}
}

// state_take ports State.take.
void state_take(struct state *s, const struct round *round) {
	uint32_t n = round->retry_count;
	s->progress.data_index = round_next_data(round);
	s->position = round->position + round->batch_size;
	if (n == 0) return;
	s->lost[n - 1].start = round->retries[n - 1].end;
	if (s->lost[n - 1].start < s->lost[n - 1].end) n--;
	s->lost_count -= n;
	host_move(s->lost, s->lost + n, s->lost_count * sizeof(struct stretch));
	host_zero(s->lost + s->lost_count, n * sizeof(struct stretch));
}

// state_lose ports State.lose.
static void state_lose(struct state *s, const struct stretch *t) {
	if (t->tries >= MAX_TRIES) return;
	struct stretch *last = s->lost + s->lost_count - 1;
	if (s->lost_count > 0 && last->end == t->start && last->tries == t->tries)
		last->end = t->end;
	else if (s->lost_count < MAX_LOST)
		s->lost[s->lost_count++] = *t;
}

// sequences are the sequences of a round that follow the batches that were read.
struct sequences {
	const struct round *round;
	uint32_t part; // number of a retry, or of the fresh sequences after them
	uint64_t read; // sequences of the part
	uint64_t next; // first sequence after the round
};

// state_read_batch reads the next batch, and adds its sequences to the lost stretches if it is lost.
static void state_read_batch(struct state *s, struct sequences *q, uint32_t size, bool lost) {
	const struct round *r = q->round;
	for (uint64_t left = size; left > 0;) {
		struct stretch t = {r->data_index, q->next, 0, {0}};
		if (q->part < r->retry_count) t = r->retries[q->part];
		t.start += q->read;
		if (stretch_len(&t) <= left) {
			q->part++;
			q->read = 0;
		} else {
			t.end = t.start + left;
			q->read += left;
		}
		left -= stretch_len(&t);
		t.tries++;
		if (lost) state_lose(s, &t);
	}
}

// state_requeue ports State.requeue. outcomes is NULL for a round without a quorum. If all results count, it
// does not compute the batches, which is costly.
void state_requeue(struct state *s, const struct round *round, const uint8_t *outcomes) {
	uint8_t counted[SET_SIZE], order[MAX_CLIENTS];
	uint32_t sizes[MAX_CLIENTS];
	host_zero(counted, SET_SIZE);
	for (uint32_t member = 0; outcomes && member < round->member_count; member++)
		if (outcomes[member] == RESULT_COUNTS && !member_set_has(round->warming, member)) member_set_add(counted, member);
	if (host_equal(counted, round->owners, SET_SIZE)) return;
	uint32_t count = assign_batches(round, s->config.verification_percent, order, sizes);
	struct sequences q = {round, 0, 0, round_next_data(round)};
	for (uint32_t warming = 0; warming < 2; warming++)
		for (uint32_t i = 0; i < count; i++)
			if (member_set_has(round->warming, order[i]) == warming)
				state_read_batch(s, &q, sizes[i], !member_set_has(counted, order[i]));
}

// state_mark ports State.mark.
void state_mark(struct state *s, uint32_t step, uint64_t data) {
	if (!s->config.retry_lost || (s->mark_count > 0 && s->marks[s->mark_count - 1].step >= step)) return;
	if (s->mark_count == MAX_MARKS) list_delete(s->marks, sizeof(struct mark), &s->mark_count, 1);
	struct mark *m = &s->marks[s->mark_count++];
	m->step = step;
	m->data = data;
}

// state_cut_marks removes the marks of steps after one.
static void state_cut_marks(struct state *s, uint32_t step) {
	while (s->mark_count > 0 && s->marks[s->mark_count - 1].step > step)
		list_delete(s->marks, sizeof(struct mark), &s->mark_count, s->mark_count - 1);
}

// state_mark_commit ports State.markCommit.
void state_mark_commit(struct state *s, uint32_t step) {
	const struct round *round = state_round_of_step(s, step);
	uint32_t recorded = s->model.checkpoint.step;
	state_cut_marks(s, recorded + 1 > s->origin_step ? recorded : s->origin_step - 1);
	if (round) state_mark(s, step, round_next_data(round));
}

// state_roll_back ports State.rollBack.
void state_roll_back(struct state *s, uint32_t step) {
	uint32_t i = 0;
	while (i < s->mark_count && s->marks[i].step != step) i++;
	if (!s->config.retry_lost || i == s->mark_count || s->marks[i].data == s->progress.data_index) return;
	uint64_t data = s->marks[i].data;
	state_cut_marks(s, step);
	for (uint32_t j = 0; j < s->lost_count;)
		if (s->lost[j].start >= data) {
			list_delete(s->lost, sizeof(struct stretch), &s->lost_count, j);
		} else {
			if (s->lost[j].end > data) s->lost[j].end = data;
			j++;
		}
	if (s->lost_count == MAX_LOST) s->lost_count--;
	host_move(s->lost + 1, s->lost, s->lost_count * sizeof(struct stretch));
	s->lost_count++;
	s->lost[0] = (struct stretch){data, s->progress.data_index, 0, {0}};
}
