package programtest

import (
	"errors"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var allMutants = flag.Bool("mutants", false, "find every mistake of TestMutants, not one in forty")

// mutants are small mistakes: in a source, the first place that reads so reads otherwise.
var mutants = []struct{ source, old, new string }{
	{"apply.c", "fresh.commitment = a->commitment;", ""},
	{"apply.c", " && key_equal(&waiting->commitment, &a->commitment)", ""},
	{"apply.c", "if (holds || !waiting->holds_model) {", "if (holds) {"},
	{"apply.c", "waiting->commitment = a->commitment;", ""},
	{"apply.c", "if (!client_reveals(client, &a->id)) return ERR_INVALID_ACTION;", ""},
	{"apply.c", "nonce <= state_last_nonce", "nonce < state_last_nonce"},
	{"apply.c", "s->run_state == UNINITIALIZED || s->closed", "s->run_state == UNINITIALIZED"},
	{"apply.c", "s->run_state == FINISHED && a.kind != CLOSE", "s->run_state == FINISHED"},
	{"apply.c", "n->place[n->count++] = &s->host_nonce", "n->place[n->count] = &s->host_nonce"},
	{"apply.c", "if (authorization) n->place", "if (!id) n->place"},
	{"apply.c", "case 1: return &s->pending;", "case 1: return &s->departed;"},
	{"apply.c", "case 2: return &s->epoch.exited;", "case 2: return &s->pending;"},
	{"apply.c", "if (clients == &s->epoch.clients) clients", "if (clients == &s->pending) clients"},
	{"apply.c", "a->number != s->progress.epoch) return ERR_WRONG_EPOCH;\n\tif (!auth", "a->number > s->progress.epoch) return ERR_WRONG_EPOCH;\n\tif (!auth"},
	{"apply.c", " || state_is_ejected(s, from)", ""},
	{"apply.c", "!is_origin(checkpoint->kind) && key_equal", "key_equal"},
	{"apply.c", "waiting->holds_model == holds && key_equal", "key_equal"},
	{"apply.c", "fresh.probation_until = s->pending.list[i].probation_until;", ""},
	{"apply.c", "fresh.probation_until = state_credit(s, from);", ""},
	{"apply.c", "client_delete(&s->departed, oldest < MAX_CLIENTS ? oldest : 0);", "client_delete(&s->departed, 0);"},
	{"apply.c", "s->departed.list[s->departed.count - 1].waited = 0;", ""},
	{"apply.c", "fresh.holds_model = holds;", ""},
	{"apply.c", "client_add(&s->pending, &fresh);\n\tstate_forget_departed(s, from);", "client_add(&s->pending, &fresh);"},
	{"apply.c", "state_forget_departed(s, &client->id);\n", ""},
	{"apply.c", "if (s->departed.count == MAX_CLIENTS)", "if (s->departed.count == MAX_CLIENTS - 1)"},
	{"apply.c", "&& !key_equal(from, &s->host)) return ERR_NOT_AUTHORISED", "&& !key_equal(from, &s->authority.main)) return ERR_NOT_AUTHORISED"},
	{"apply.c", "if (client->ready) return ERR_DUPLICATE;", ""},
	{"apply.c", "s->run_state != ROUND_TRAIN && s->run_state != ROUND_WITNESS", "s->run_state != ROUND_TRAIN"},
	{"apply.c", "if (!member_set_has(round->elected, member)) return ERR_NOT_ELECTED;", ""},
	{"apply.c", "\t\thost_zero(w, sizeof *w);\n", ""},
	{"apply.c", "!round_member_index(round, from, &member) || !state_is_healthy(s, from)", "!round_member_index(round, from, &member)"},
	{"apply.c", "a->number != s->progress.step) return ERR_WRONG_STEP", "a->number + 1 < s->progress.step) return ERR_WRONG_STEP"},
	{"apply.c", "if (client->report) return ERR_DUPLICATE;", ""},
	{"apply.c", "if (s->run_state == PAUSED) return ERR_HALTED;", ""},
	{"health.c", " || state_is_back(s, client)", ""},
	{"apply.c", "client.returns >= MAX_RETURNS", "client.returns > MAX_RETURNS"},
	{"apply.c", "if (waits >= 0) client_delete(&s->pending, (uint32_t)waits);", ""},
	{"apply.c", "if (client.lateness == FOUND_LATE) client.lateness = LATE;", ""},
	{"apply.c", "client.optimizer_since = s->progress.step;", ""},
	{"apply.c", "client.ready = index_of_key", "client.ready = 0 && index_of_key"},
	{"epoch.c", "client->returns = 0;", ""},
	{"authority.c", "key_equal(&x->grantee, id) || index_of_key", "index_of_key"},
	{"authority.c", "if (s->run_state == PAUSED) {", "if (s->run_state == FINISHED) {"},
	{"authority.c", "if (s->run_state != PAUSED) return ERR_WRONG_STATE;", ""},
	{"authority.c", "s->progress.step > u->config.total_steps", "s->progress.step >= u->config.total_steps"},
	{"authority.c", "s->progress.data_index != 0 && u->max_seq_len", "s->progress.step > 1 && u->max_seq_len"},
	{"authority.c", "if (replaced && !is_origin(u->checkpoint.kind)) return ERR_INVALID_CONFIG;", ""},
	{"authority.c", "host_zero(s->epoch.reports, sizeof s->epoch.reports);", ""},
	{"authority.c", "s->origin_step = s->progress.step;", ""},
	{"authority.c", "s->earlier_count = s->upload_count = 0;", "s->earlier_count = 0;"},
	{"authority.c", "s->pending.list[i].holds_model = 0;", "s->pending.list[i].holds_model &= 1;"},
	{"authority.c", "origin->step = 0;", ""},
	{"authority.c", "if (member) member->barred = !may;", "if (member && !may) member->barred = 1;"},
	{"authority.c", "for (uint32_t i = 0; lost_count > 0 && i < s->pending.count;) {", "for (uint32_t i = 1; lost_count > 0 && i < s->pending.count;) {"},
	{"authority.c", "authorization_count >= MAX_AUTHORIZATIONS", "authorization_count > MAX_AUTHORIZATIONS"},
	{"authority.c", " || authority->grants == UINT32_MAX", ""},
	{"authority.c", "key_equal(&changed[i], from) || ", ""},
	{"authority.c", " || index_of_key(changed, i, &changed[i]) >= 0", ""},
	{"authority.c", "a->id_count == x->delegate_count && host_equal", "host_equal"},
	{"authority.c", "host_zero(x->delegates, sizeof x->delegates);", ""},
	{"authority.c", "uint32_t count = 1 + x->delegate_count;", "uint32_t count = 1;"},
	{"authority.c", "if (authority->ejection_count == MAX_EJECTIONS)", "if (authority->ejection_count == MAX_EJECTIONS - 1)"},
	{"authority.c", "s->progress.epoch + 2", "s->progress.epoch + 1"},
	{"authority.c", "if (s->progress.epoch < a->ejections[i].until)", "if (s->progress.epoch <= a->ejections[i].until)"},
	{"authority.c", "s->pending_resume = 0;", ""},
	{"authority.c", "s->run_state != PAUSED && s->run_state != FINISHED", "s->run_state != PAUSED"},
	{"coldstart.c", "client->optimizer_since < steps", "client->optimizer_since <= steps"},
	{"coldstart.c", "experienced ? probation[i] | warming[i]", "true ? probation[i] | warming[i]"},
	{"coldstart.c", "if (!regular) host_zero(probation, sizeof probation);", ""},
	{"coldstart.c", "steps == 0 && state_probation(s) == 0", "steps == 0"},
	{"coldstart.c", "~(probation[i] | warming[i])", "~warming[i]"},
	{"coldstart.c", "if (!member_set_has(round->owners, member)) continue;", ""},
	{"due.c", "s->epoch.start_time > now", "s->epoch.start_time >= now"},
	{"due.c", "if (now == 0) *at = 1;", ""},
	{"due.c", "p.most > 0 ? p.most : 1", "p.most"},
	{"due.c", "return end > p.since;", "return true;"},
	{"due.c", "(!enough && s->minimum_since != 0)", "false"},
	{"due.c", "healthy < s->epoch.clients.count || ", ""},
	{"due.c", "state_ready_count(s) >= healthy", "state_ready_count(s) > healthy"},
	{"due.c", "round_has_quorum(state_current_round(s)) || state_quorum_is_out_of_reach(s)", "round_has_quorum(state_current_round(s))"},
	{"due.c", "round_has_quorum(state_current_round(s)) || ", ""},
	{"due.c", "state_no_witness_is_awaited(s)", "false"},
	{"due.c", "s->closed || s->pending_resume", "s->pending_resume"},
	{"epoch.c", "client->exited_height = height;", ""},
	{"epoch.c", "client->report = 0;\n\t\tclient_add", "client_add"},
	{"epoch.c", "client->state == HEALTHY && client->barred", "client->barred"},
	{"epoch.c", "state_current_round(s)->height : 0", "0 : 0"},
	{"epoch.c", "client->active = client->ready = 0;", "client->ready = 0;"},
	{"epoch.c", "client->state == HEALTHY && (!client->active", "(!client->active"},
	{"epoch.c", "client->lateness != ON_TIME && !client->report", "client->lateness != ON_TIME"},
	{"epoch.c", " || (client->lateness != ON_TIME && !client->report)", ""},
	{"epoch.c", "client->lateness = ON_TIME;", ""},
	{"epoch.c", "(state_seats(s) + 2) / 3", "state_seats(s) / 3"},
	{"epoch.c", "return quorum > third ? quorum : third;", "return quorum;"},
	{"epoch.c", "if (client->state != HEALTHY) continue;\n\t\thealthy++;", "healthy++;"},
	{"epoch.c", "if (!digest || clients->list[i].state != HEALTHY) continue;", "if (!digest) continue;"},
	{"epoch.c", "&& clients->list[i].state == HEALTHY && key_equal", "&& key_equal"},
	{"epoch.c", "healthy > s->config.min_clients ? healthy : s->config.min_clients", "healthy"},
	{"epoch.c", "candidate && count >= state_reports_needed(s)", "candidate && count > state_reports_needed(s)"},
	{"epoch.c", "if (!holds) client->optimizer_since = 0;", ""},
	{"epoch.c", "if (agreed) client->holds_model = holds;", "client->holds_model = holds;"},
	{"epoch.c", "state_remember(s, checkpoint);", ""},
	{"epoch.c", "checkpoint->step = s->progress.step - 1;", "checkpoint->step = s->progress.step;"},
	{"epoch.c", "s->pending.list[i].holds_model = 0;", "break;"},
	{"epoch.c", "s->uploads[i].tries = 0;", "break;"},
	{"health.c", "uint32_t silent = (uint32_t)r->witnesses_elected - r->witness_count;", "uint32_t silent = 0;"},
	{"health.c", "round_has_quorum(r) && ", ""},
	{"health.c", "+ silent < r->witnesses_needed", "+ silent <= r->witnesses_needed"},
	{"health.c", "if (a->id_count == 0) return ERR_INVALID_ACTION;", ""},
	{"health.c", "a->number != s->progress.step - 1", "a->number >= s->progress.step"},
	{"health.c", "if (member_set_has(named, member)) return ERR_INVALID_ACTION;", ""},
	{"health.c", "if (!member_set_has(round->owners, member)) return ERR_FALSE_ACCUSATION;", ""},
	{"health.c", "if (!client || client->state != HEALTHY) continue;", "if (!client) continue;"},
	{"health.c", "changed ? ACCEPTED : ERR_DUPLICATE", "ACCEPTED"},
	{"health.c", "r->witness_count >= score + r->witnesses_needed", "r->witness_count > score + r->witnesses_needed"},
	{"health.c", "c->lateness == LATE && denied && left->drop > 0", "c->lateness == LATE && denied"},
	{"health.c", "c->lateness == LATE && denied && left->drop > 0", "c->lateness == LATE && left->drop > 0"},
	{"health.c", "c->lateness == LATE && denied && left->drop > 0", "denied && left->drop > 0"},
	{"health.c", "c->lateness == LATE && !denied && left->slow > 0", "c->lateness == LATE && !denied"},
	{"health.c", "c->lateness == LATE && !denied && left->slow > 0", "c->lateness == LATE && left->slow > 0"},
	{"health.c", "c->lateness == LATE && !denied && left->slow > 0", "!denied && left->slow > 0"},
	{"health.c", "left->drop--;", ""},
	{"health.c", "left->slow--;", ""},
	{"health.c", "c->lateness = SLOW;", ""},
	{"health.c", "count_slow(&s->epoch.clients) + count_slow(&s->epoch.exited)", "count_slow(&s->epoch.clients)"},
	{"health.c", "if (third == 0) third = 1;", ""},
	{"health.c", "dropped += s->epoch.clients.list[i].state == DROPPED;", ""},
	{"health.c", "s->epoch.clients.count + s->epoch.exited.count", "s->epoch.clients.count"},
	{"health.c", "if (client->lateness == FOUND_LATE) client->lateness = LATE;", ""},
	{"next.c", ">= c->rounds_per_epoch", "> c->rounds_per_epoch"},
	{"next.c", "step > s->epoch.last_step", "step >= s->epoch.last_step"},
	{"next.c", "state_healthy_count(s) < c->min_clients", "state_healthy_count(s) <= c->min_clients"},
	{"next.c", "step > c->total_steps", "step >= c->total_steps"},
	{"next.c", " || s->pending_pause", ""},
	{"next.c", "s->seed_chain.word[1]", "s->seed_chain.word[0]"},
	{"next.c", "{&s->progress.step, sizeof s->progress.step}", "{&s->progress.step, 2}"},
	{"next.c", "if (epoch->round_count == STORED_ROUNDS)", "if (epoch->round_count == STORED_ROUNDS - 1)"},
	{"next.c", "state_warm(s, round);", ""},
	{"next.c", "s->pending.list[i].waited = 1;", "break;"},
	{"seats.c", "s->authority.permissioned ? 0 : s->config.probation_steps", "s->config.probation_steps"},
	{"seats.c", "steps < most ? steps : most", "steps"},
	{"seats.c", "state_probation(s) != 0 && step < c->probation_until", "step < c->probation_until"},
	{"seats.c", "step < c->probation_until", "step <= c->probation_until"},
	{"seats.c", "lists[3] = {&s->epoch.clients, &s->epoch.exited, &s->departed}", "lists[3] = {&s->epoch.clients, &s->departed, &s->departed}"},
	{"seats.c", " || client->state == EJECTED", ""},
	{"seats.c", "client->state == DROPPED ? state_probation_end(s) : ", ""},
	{"seats.c", " || key_equal(id, &s->authority.join)", ""},
	{"seats.c", " && !s->authority.permissioned", ""},
	{"seats.c", " && !state_has_office(s, &c->id)", ""},
	{"seats.c", "client.state = WITHDRAWN;", ""},
	{"seats.c", " - state_is_healthy(s, from)", ""},
	{"seats.c", "if (s->run_state == WARMUP) room", "if (s->run_state != UNINITIALIZED) room"},
	{"seats.c", "s->pending.count < room", "s->pending.count <= room"},
	{"seats.c", "{id, sizeof *id}", "{id, 31}"},
	{"seats.c", "if (!client->waited) ranks[i] |= 1ull << 63;", ""},
	{"seats.c", "state_rank(s, &client->id) >> 1", "state_rank(s, &client->id)"},
	{"seats.c", "if (below <= places) limit |= bit;", "if (below <= places + 1) limit |= bit;"},
	{"seats.c", "newcomers > over ? newcomers - over : 0", "newcomers > over ? newcomers - over : 1"},
	{"seats.c", "i < count && kept < room; i++", "i < count; i++"},
	{"seats.c", "most = (regular - 1) / 2 > 1 ? (regular - 1) / 2 : 1", "most = (regular - 1) / 2"},
	{"seats.c", "(regular - 1) / 2 > 1 ? (regular - 1) / 2 : 1", "regular / 2 > 1 ? regular / 2 : 1"},
	{"seats.c", "most > young ? most - young : 0", "most"},
	{"seats.c", "least > known + places ? least - known : places", "places"},
	{"seats.c", "state_probation(s) == 0 || known == 0", "known == 0"},
	{"seats.c", "\t\tregular = young;\n\t\tyoung = 0;", "\t\treturn 1;"},
	{"next.c", "{&s->reveals, sizeof s->reveals}", "{&s->reveals, 24}"},
	{"next.c", "{draw, sizeof *draw}", "{draw, 24}"},
	{"reveal.c", "if (key_is_zero(&c->commitment)) return key_is_zero(value);", ""},
	{"reveal.c", "return key_is_zero(value);", "return true;"},
	{"reveal.c", "return key_equal(&digest, &c->commitment);", "return true;"},
	{"reveal.c", "if (!key_is_zero(&client->commitment)) {", "{"},
	{"reveal.c", "{&client->id, sizeof client->id}", "{&client->id, 24}"},
	{"reveal.c", "{&a->id, sizeof a->id}", "{&a->id, 24}"},
	{"reveal.c", "s->reveals.word[i] ^= part", "s->reveals.word[i] = part"},
	{"reveal.c", "client->commitment = a->commitment;", ""},
	{"round.c", "> FILTER_HASHES * (uint32_t)r->member_count", ">= FILTER_HASHES * (uint32_t)r->member_count"},
	{"round.c", "> FILTER_HASHES * batches", "> FILTER_HASHES * batches + 1"},
	{"round.c", "r->witness_count >= r->witnesses_needed", "r->witness_count > r->witnesses_needed"},
	{"tick.c", "changed |= adjust_time(&s->minimum_since, now);", ""},
	{"tick.c", "now - start >= wait", "now - start > wait"},
	{"tick.c", "now > start && ", ""},
	{"tick.c", "s->cold_start = 1;", ""},
	{"tick.c", "if (!id_set_has(&set, &exited->list[i].id)) exited", "exited"},
	{"tick.c", "if (!id_set_has(&set, &departed->list[i].id)) departed", "departed"},
	{"tick.c", "host_move(departed->list, departed->list + over,", "host_move(departed->list, departed->list,"},
	{"tick.c", "if (over > 0 && client_is_new(&departed->list[i]))", "if (over > 1 && client_is_new(&departed->list[i]))"},
	{"tick.c", "if (client_is_new(client)) client->probation_until", "client->probation_until"},
	{"tick.c", "client->waited = 0;", ""},
	{"tick.c", "host_zero(departed->list + departed->count", "host_zero(departed->list + kept"},
	{"tick.c", "s->cold_start || client->optimizer_since == 0", "client->optimizer_since == 0"},
	{"tick.c", "s->epoch.cold_start = s->cold_start;", ""},
	{"tick.c", "s->pending.count < s->config.init_min_clients", "s->pending.count < s->config.min_clients"},
	{"tick.c", "return now != 0;", "return true;"},
	{"tick.c", "bool changed = state_remove_leavers(s, 0);", "bool changed = state_remove_leavers(s, 1);"},
	{"tick.c", "if (s->epoch.ready_count == 0) state_count_try(s);", "state_count_try(s);"},
	{"tick.c", "client->holds_model = client->ready;", ""},
	{"tick.c", "s->cold_start = 0;", ""},
	{"tick.c", "if (client && client->state == HEALTHY)", "if (client)"},
	{"tick.c", "if (!round_has_quorum(round)) return false;\n\tstruct lookup", "struct lookup"},
	{"tick.c", "->lateness == SLOW) continue;", "->lateness == SLOW) return true;"},
	{"tick.c", "!member_set_has(round->owners, member) || !round_denied", "!round_denied"},
	{"tick.c", " || !round_denied(round, round_score(round, &keys, id))", ""},
	{"tick.c", "state_keep_findings(s);", ""},
	{"tick.c", "left + round->witnesses_needed) return false", "left) return false"},
	{"tick.c", "member_set_remove(silent, round->witnesses[i].member);", "break;"},
	{"tick.c", "s->epoch.last_step == 0 && elapsed", "elapsed"},
	{"tick.c", "s->progress.step + 1;", "s->progress.step + 2;"},
	{"tick.c", "!round_has_quorum(round) || ", ""},
	{"tick.c", "state_ends_before(s, s->progress.step + 1)", "state_ends_before(s, s->progress.step)"},
	{"tick.c", "state_drop_silent(s);", ""},
	{"tick.c", "host_zero(&s->departed, sizeof s->departed);", ""},
	{"tick.c", "state_forget_ejections(s);", ""},
	{"tick.c", "\t\ts->pending_pause = 0;\n\t\tstate_enter(s, FINISHED", "\t\tstate_enter(s, FINISHED"},
	{"tick.c", "s->progress.step > s->config.total_steps", "s->progress.step >= s->config.total_steps"},
	{"upload.c", "text[i] <= ' '", "text[i] < ' '"},
	{"upload.c", "text[i] > '~'", "text[i] > 0x7f"},
	{"upload.c", "p->repo_length + p->revision_length > MAX_REPO_LENGTH", "p->repo_length > MAX_REPO_LENGTH"},
	{"upload.c", "p->revision_length != 40", "p->revision_length < 40"},
	{"upload.c", "c <= '9'", "c <= ':'"},
	{"upload.c", "c <= 'f'", "c <= 'g'"},
	{"upload.c", "!is_origin(c->kind) && c->step == step", "c->step == step"},
	{"upload.c", "s->earlier[i].step == step && key_equal", "key_equal"},
	{"upload.c", "uploads[i].step < uploads[stale].step", "uploads[i].step <= uploads[stale].step"},
	{"upload.c", "uploads[i].since > uploads[youngest].since ||", "uploads[i].since >= uploads[youngest].since ||"},
	{"upload.c", "uploads[i].since == uploads[youngest].since && uploads[i].step", "uploads[i].step"},
	{"upload.c", "uploads[youngest].since > state_seniority(s, from)", "uploads[youngest].since >= state_seniority(s, from)"},
	{"upload.c", "if (state_has_office(s, id)) return 0;", ""},
	{"upload.c", "client && !client_is_new(client) ? client->probation_until", "client ? client->probation_until"},
	{"upload.c", "u->step < step && !state_is_healthy", "!state_is_healthy"},
	{"upload.c", " && index_of(&s->pending, &u->reporter) < 0", ""},
	{"upload.c", "if (!state_is_recorded(s, u->step, &u->digest)) return true;", ""},
	{"upload.c", "u->since = state_seniority(s, from);", ""},
	{"upload.c", "waiting < 0 || !s->pending.list[waiting].holds_model", "waiting < 0"},
	{"upload.c", "s->uploads[i].step >= a->number ? ERR_DUPLICATE", "s->uploads[i].step > a->number ? ERR_DUPLICATE"},
	{"upload.c", "if (!experienced) s->cold_start = 1;", ""},
	{"upload.c", "s->uploads[i].tries >= MAX_UPLOAD_TRIES", "s->uploads[i].tries > MAX_UPLOAD_TRIES"},
	{"upload.c", "s->uploads[i].step > newest->step", "s->uploads[i].step >= newest->step && newest->step"},
	{"upload.c", "s->earlier[i].step >= newest->step", "s->earlier[i].step > newest->step"},
	{"upload.c", "u->tries < MAX_UPLOAD_TRIES", "true"},
	{"upload.c", "key_equal(&u->digest, &s->model.checkpoint.digest) && u->tries", "u->tries"},
	{"upload.c", "if (s->earlier_count == MAX_EARLIER)", "if (s->earlier_count == MAX_EARLIER - 1)"},
	{"upload.c", "s->origin_step : c->step + 1", "s->origin_step : c->step"},
	{"upload.c", "if (first >= next) return;", "if (first > next) return;"},
	{"upload.c", "s->lapses[i].first >= first", "s->lapses[i].first > first"},
	{"upload.c", "if (s->lapse_count == MAX_LAPSES)", "if (s->lapse_count == MAX_LAPSES - 1)"},
	{"config.c", "c->warmup_time <= MAX_TIME", "c->warmup_time < MAX_TIME"},
	{"config.c", "c->waiting_for_members_extra_time <= MAX_TIME", "true"},
	{"config.c", "if (c->rounds_per_epoch != 0 && c->epoch_time != 0) return false;", ""},
	{"config.c", "c->warmup_time >= c->epoch_time", "c->warmup_time > c->epoch_time"},
	{"config.c", "c->max_round_train_time >= c->epoch_time", "c->max_round_train_time > c->epoch_time"},
	{"config.c", "if (c->round_witness_time == 0) return false;", ""},
	{"config.c", "c->init_min_clients < c->min_clients", "c->init_min_clients <= c->min_clients"},
	{"config.c", "c->init_min_clients > MAX_CLIENTS", "c->init_min_clients > MAX_CLIENTS + 1"},
	{"config.c", "if (c->global_batch_size_start == 0) return false;", ""},
	{"config.c", "if (c->total_steps == UINT32_MAX) return false;", ""},
	{"config.c", "c->witness_nodes > c->min_clients", "c->witness_nodes >= c->min_clients"},
	{"config.c", "c->witness_nodes > MAX_WITNESSES", "c->witness_nodes > MAX_WITNESSES + 1"},
	{"config.c", "c->verification_percent > 100", "c->verification_percent > 101"},
	{"config.c", "if (!p2p && c->origin != 0) return false;", ""},
	{"config.c", " && c->origin != CHECKPOINT_DUMMY", ""},
	{"config.c", "key_is_zero(&c->digest) && c->step == 0", "c->step == 0"},
	{"config.c", "u->cold_start_warmup_steps > rounds", "u->cold_start_warmup_steps > rounds + 1"},
	{"config.c", "(c->epoch_time - c->warmup_time) /", "c->epoch_time /"},
	{"config.c", "(a >> 32) * b + (low >> 32)", "(a >> 32) * b"},
	{"config.c", "carry || high >= divisor", "high >= divisor"},
	{"config.c", "high != 0 || tokens >= warmup", "tokens >= warmup"},
	{"config.c", "rest >= warmup - rest", "rest > warmup - rest"},
	{"config.c", "run_id[i] < ' '", "run_id[i] <= ' '"},
	{"config.c", "run_id[i] == 0x7f", "run_id[i] >= 0x7f"},
	{"decode.c", "r->failed || n > r->size", "r->failed"},
	{"decode.c", "if (b > 1) r->failed = true;", ""},
	{"decode.c", "if (*length > limit) r->failed = true;", ""},
	{"decode.c", "a->id_count > limit || ", ""},
	{"authority.c", "if (!round_member_index(round, &a->id, &member)) return ERR_NOT_MEMBER;", ""},
	{"authority.c", "if (!state_is_healthy(s, from) && index_of(&s->pending, from) < 0) return ERR_NOT_MEMBER;", ""},
	{"authority.c", "!state_is_healthy(s, from) && index_of", "index_of"},
	{"authority.c", "if (state_is_ejected(s, &a->id)) return ERR_NOT_MEMBER;", ""},
	{"authority.c", "{&s->epoch.clients, &s->epoch.exited, &s->departed};", "{&s->epoch.clients, &s->departed, &s->departed};"},
	{"authority.c", "{&s->epoch.clients, &s->epoch.exited, &s->departed};", "{&s->epoch.clients, &s->epoch.exited, &s->epoch.exited};"},
	{"decode.c", "if (!proof_equivocates(&a->proof)) r->failed = true;", "if (0) r->failed = true;"},
	{"decode.c", "a->proof.size[i] > ANNOUNCED_END + ANNOUNCED_HEAD", "a->proof.size[i] > ANNOUNCED_END"},
	{"decode.c", " &&\n\t       !host_equal(p->message[0] + ANNOUNCED_BLOB", " ||\n\t       !host_equal(p->message[0] + ANNOUNCED_BLOB"},
	{"decode.c", "if (key_is_zero(&a->id)) r->failed = true;", ""},
	{"decode.c", "if (u->definition_size > MAX_DEFINITION_SIZE) r->failed = true;", ""},
	{"decode.c", "r->failed || repo_length + revision_length > MAX_REPO_LENGTH", "r->failed"},
	{"decode.c", "if (r->failed || r->size > 0) return ERR_MALFORMED;", "if (r->failed) return ERR_MALFORMED;"},
	{"decode.c", "return r.failed || r.size > 0 ? ERR_MALFORMED", "return r.failed ? ERR_MALFORMED"},
	{"decode.c", "if (bits > 3) r.failed = true;", ""},
	{"machine.c", "p->step > total_steps) return false", "p->step > total_steps + 1) return false"},
	{"machine.c", "p->epoch < p->step", "p->epoch <= p->step"},
	{"machine.c", "(p->step - 1ull) * UINT32_MAX", "p->step * 0xffffffffull"},
	{"machine.c", "g.progress.step > 1;", "g.progress.step > 2;"},
	{"machine.c", "host_zero(s->model.definition, MAX_DEFINITION_SIZE);", ""},
	{"machine.c", "key_is_zero(&g.join) ? s->authority.main", "key_is_zero(&g.join) ? g.host"},
	{"assign.c", "return idle < members ? idle : members - 1;", "return idle;"},
	{"assign.c", "r->batch_size < count", "r->batch_size <= count - 2"},
	{"assign.c", "r->batch_seed, SALT_BATCH", "r->seed, SALT_BATCH"},
	{"assign.c", "(2 * n + 2) / 3", "(2 * n + 1) / 3"},
	{"assign.c", "trainers < batch_size ? trainers : batch_size", "trainers"},
	{"shuffle.c", "SHUFFLE_ROUNDS = 90", "SHUFFLE_ROUNDS = 89"},
	{"shuffle.c", "(last - first + 1) / 2", "(last - first) / 2"},
	{"shuffle.c", "left = place % 64 + 1", "left = place % 64"},
	{"shuffle.c", "{\"committee\", 9}", "{\"committee\", 8}"},
	{"bloom.c", "shift < 64", "shift < 56"},
	{"list.c", "host_zero(at + behind * element, element);", ""},
	{"list.c", "if (l->next == l->count) l->next = 0;", "if (l->next == l->count) return NULL;"},
}

// TestMutants makes every mistake and wants the short run of TestProgram to find it.
func TestMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute, and minutes with the race detector, which has nothing to find in C")
	}
	native(t)
	for i, m := range mutants {
		if i%40 > 0 && !*allMutants {
			continue
		}
		t.Run(m.source+" "+m.old, func(t *testing.T) {
			p, err := start(mutant(t, m.source, m.old, m.new))
			if err != nil {
				t.Fatal(err)
			}
			err = differenceOf(newPair(p))
			if end := p.stop(); err == nil && end == nil {
				t.Errorf("survives as %q", m.new)
			}
			t.Log(err)
		})
	}
}

// differenceOf returns what the short run finds.
func differenceOf(r *pair) error {
	for _, s := range suites(shortRun) {
		if err := s.run(r); err != nil {
			var d *differs
			if !errors.As(err, &d) {
				return errors.Join(errors.New("Go alone fails"), err)
			}
			return err
		}
	}
	return nil
}

// mutant returns the program with a change in one source.
func mutant(t *testing.T, name, old, changed string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(sources, name))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), old) {
		t.Fatalf("%s has no %q any more: change the mutant", name, old)
	}
	folder := t.TempDir()
	source, object, program := filepath.Join(folder, name), filepath.Join(folder, "changed.o"), filepath.Join(folder, "changed")
	if err := os.WriteFile(source, []byte(strings.Replace(string(text), old, changed, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, needCompiler(t), append(compilerFlags, "-Wno-error", "-I", sources, "-c", source, "-o", object)...)
	objects := maps.Clone(built.objects)
	objects[name] = object
	linkNative(t, program, objects)
	return program
}
