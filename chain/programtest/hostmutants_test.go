package programtest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/chain/programtest/compile"
	"github.com/psyche-go/psyche/chain/programtest/link"
)

// hostMutants are mistakes in the part of the program that runs the rules on the chain. The list omits
// mistakes that only lengthen a search whose result a later check refuses anyway.
var hostMutants = []mutation{
	{"input.c", "if (l->count < d->accounts) return NOT_ENOUGH_ACCOUNT_KEYS;", ""},
	{"input.c", "if (l->count > d->accounts) return INVALID_ARGUMENT;", ""},
	{"input.c", "if (d->accounts > 1 && l->same[1] != 1) return INVALID_ARGUMENT;", ""},
	{"input.c", "&& l->same[2] == 1)", ")"},
	{"input.c", "!l->account[0]->writable || ", ""},
	{"input.c", " || (d->third_writable && !l->account[2]->writable)", ""},
	{"input.c", "if (d->accounts > 1 && !l->account[1]->signer) return MISSING_REQUIRED_SIGNATURE;", ""},
	{"input.c", "if (!key_equal(&c->target->owner, c->program)) return INVALID_ACCOUNT_OWNER;", ""},
	{"input.c", "c->size == 0 || ", ""},
	{"run.c", "(*a)->version != ACCOUNT_VERSION", "false"},
	{"run.c", "return c->target->size == sizeof **a ? 0 : INVALID_ACCOUNT_DATA;", "return 0;"},
	{"run.c", "return (*a)->state.version == STATE_VERSION ? 0 : ERR_OTHER_VERSION;", "return 0;"},
	{"run.c", "a->magic != 0 || ", ""},
	{"run.c", " || !host_equal(bytes, bytes + 8, sizeof *a - 8)", ""},
	{"run.c", "if (!key_equal(&c->signer->address, &a->main)) return INCORRECT_AUTHORITY;", ""},
	{"run.c", "if (a->state.magic != 0) return ACCOUNT_ALREADY_INITIALIZED;", ""},
	{"run.c", "!key_equal(&s->host, &c->target->address) || ", ""},
	{"run.c", " || !key_equal(&s->authority.main, &a->main)", ""},
	{"run.c", "return INVALID_SEEDS;", "return 0;"},
	{"run.c", "\t*kind = 0;\n", ""},
	{"run.c", "\t*kind = 0;\n\tclear_stage(a);\n", "\t*kind = 0;\n"},
	{"run.c", "if (c->size < 8) return INVALID_INSTRUCTION_DATA;", ""},
	{"run.c", "\tfirst_head(a, c, length);\n", ""},
	{"run.c", " || at > e->now", ""},
	{"run.c", "a->armed != 0 && ", ""},
	{"run.c", "<= DRAW_FORGOTTEN", "< DRAW_FORGOTTEN"},
	{"run.c", "DRAW_FORGOTTEN = 400", "DRAW_FORGOTTEN = 401"},
	{"run.c", "DRAW_WAIT = 2", "DRAW_WAIT = 1"},
	{"run.c", "if (by.data[0] == SET_PAUSED) a->armed = 0;", ""},
	{"run.c", "c->size > MAX_SALT", "c->size > 2 * MAX_SALT"},
	{"run.c", "{.data = c->data};", "{.data = c->data, .size = c->size};"},
	{"proof.c", "if (!host_equal(a.proof.message[0] + ANNOUNCED_RUN, &run, sizeof run)) return INVALID_ARGUMENT;", ""},
	{"proof.c", "if (!key_equal(&sysvar->address, &instructions)) return INVALID_ARGUMENT;", ""},
	{"proof.c", "!host_equal(own.program, c->program, sizeof(struct key)) || ", ""},
	{"proof.c", " || !host_equal(own.data, data, own.size)", ""},
	{"proof.c", "!host_equal(check.program, &ed25519, sizeof(struct key)) || ", ""},
	{"proof.c", " || check.data[0] != SIGNATURES", ""},
	{"proof.c", " && names_field(at + 4, 10, index)", ""},
	{"proof.c", " && uint16_at(at + 12) == index", ""},
	{"run.c", "by.data[0] == EQUIVOCATION && (refused = check_proof(c))", "by.data[0] == EQUIVOCATION && (refused = 0)"},
	{"draw.c", "s->run_state == WARMUP || ", ""},
	{"draw.c", " || s->run_state == ROUND_WITNESS", ""},
	{"draw.c", "entry.slot < target", "entry.slot <= target"},
	{"draw.c", "*ready = low > 0;", "*ready = true;"},
	{"draw.c", "{run, sizeof *run}, ", ""},
	{"log.c", "e->instruction == TICK || ", ""},
	{"log.c", "* 1000 : 0", ": 0"},
	{"log.c", "a->closed = a->state.closed;", ""},
	{"log.c", "a->run_state = a->state.run_state;", ""},
	{"log.c", "a->slot = e->slot;", ""},
	{"log.c", "a->head = e->head;", ""},
	{"log.c", "a->state.sequence = e->sequence;", ""},
	{"stage.c", "if (!key_equal(&c->signer->address, &a->main)) return INCORRECT_AUTHORITY;", ""},
	{"stage.c", "if (c->size <= 4)", "if (c->size < 4)"},
	{"stage.c", "if (end > STAGE_SIZE)", "if (at > STAGE_SIZE)"},
	{"stage.c", "if (end > STAGE_SIZE)", "if (end >= STAGE_SIZE)"},
	{"stage.c", "if (end > a->staged) a->staged", "a->staged"},
	{"stage.c", "if (*length > a->staged) return INVALID_INSTRUCTION_DATA;", ""},
	{"stage.c", "host_equal(&digest, named + 4, sizeof digest) ? 0", "true ? 0"},
	{"stage.c", "host_zero(a->stage, a->staged);", ""},
	{"stage.c", "a->staged = 0;", ""},
	{"free.c", "if (c->target->size < offsetof(struct account, slot)) return INVALID_ACCOUNT_DATA;", ""},
	{"free.c", "return key_equal(&c->signer->address, &(*a)->main) ? 0 : INCORRECT_AUTHORITY;", "return 0;"},
	{"free.c", " && (*a)->magic != FREED_MAGIC", ""},
	{"free.c", "if (c->size > 0) return INVALID_INSTRUCTION_DATA;", ""},
	{"free.c", "a->run_state != UNINITIALIZED && ", ""},
	{"free.c", " && a->closed", ""},
	{"free.c", "host_zero(a, c->target->size);", ""},
	{"free.c", "host_zero(a, c->target->size);", "host_zero(a, sizeof *a);"},
	{"free.c", "a->magic = FREED_MAGIC;", ""},
	{"free.c", "a->main = main;", ""},
	{"free.c", "\tfrom->lamports = 0;\n", ""},
	{"free.c", " || a->run_state != PAUSED", ""},
	{"free.c", "c->size != 4", "c->size < 4"},
	{"peer.c", "if (!is_run(c->third, c->program)) return INVALID_ARGUMENT;", ""},
	{"peer.c", "key_equal(&account->owner, program) && ", ""},
	{"peer.c", "account->size == sizeof *a && ", ""},
	{"peer.c", "a->magic == RUN_MAGIC && ", ""},
	{"peer.c", " && a->version == ACCOUNT_VERSION", ""},
	{"peer.c", "if (c->target->size != sizeof *p) return INVALID_ACCOUNT_DATA;", ""},
	{"peer.c", "if (p->magic != 0 && p->magic != PEER_MAGIC) return INVALID_ACCOUNT_DATA;", ""},
	{"peer.c", "if (p->magic != 0 && p->version != ACCOUNT_VERSION) return ERR_OTHER_VERSION;", ""},
	{"peer.c", "return INVALID_SEEDS;", ";"},
	{"peer.c", "bytes[0] > MAX_ADDRESSES", "bytes[0] > MAX_ADDRESSES + 1"},
	{"peer.c", "length == 0 || ", ""},
	{"peer.c", "length > MAX_ADDRESS_LENGTH || ", ""},
	{"peer.c", "total > MAX_ADDRESSES_TOTAL || ", ""},
	{"peer.c", "bytes[at] <= ' '", "bytes[at] < ' '"},
	{"peer.c", "bytes[at] > '~'", "bytes[at] > 0x7f"},
	{"peer.c", "return at == size;", "return true;"},
	{"peer.c", "host_zero(p->addresses, sizeof p->addresses);", ""},
	{"peer.c", "p->owner = *owner;", ""},
	{"peer.c", "if (c->target->size < offsetof(struct peer, slot)) return INVALID_ACCOUNT_DATA;", ""},
	{"peer.c", "if (!key_equal(&c->signer->address, &p->owner)) return INCORRECT_AUTHORITY;", ""},
	{"peer.c", "if (c->size > 0) return INVALID_INSTRUCTION_DATA;", ""},
	{"peer.c", "host_zero(p, c->target->size);", ""},
	{"peer.c", "p->magic = FREED_MAGIC;", ""},
	{"grant.c", "size < sizeof *g || ", ""},
	{"grant.c", " || size > sizeof *g + MAX_GRANT_DELEGATES * sizeof(struct key)", ""},
	{"grant.c", " || size % sizeof(struct key) != sizeof *g % sizeof(struct key)", ""},
	{"grant.c", "g->magic != 0 || ", ""},
	{"grant.c", " || !host_equal(c->target->data, c->target->data + 8, size - 8)", ""},
	{"grant.c", "return INVALID_SEEDS;", ";"},
	{"grant.c", "if (c->size != sizeof grantee) return INVALID_INSTRUCTION_DATA;", ""},
	{"grant.c", "if ((*g)->magic == 0) return UNINITIALIZED_ACCOUNT;", ""},
	{"grant.c", "if ((*g)->magic != GRANT_MAGIC) return INVALID_ACCOUNT_DATA;", ""},
	{"grant.c", "return (*g)->version == ACCOUNT_VERSION ? 0 : ERR_OTHER_VERSION;", "return 0;"},
	{"grant.c", "if (c->target->size < sizeof **g) return INVALID_ACCOUNT_DATA;", ""},
	{"grant.c", "if (!key_equal(&c->signer->address, &g->grantee)) return INCORRECT_AUTHORITY;", ""},
	{"grant.c", "c->size % sizeof(struct key) != 1 || ", ""},
	{"grant.c", " || c->data[0] > 1", ""},
	{"grant.c", "host_zero(g->delegates, g->count * sizeof(struct key));", ""},
	{"grant.c", "g->count = 0;", ""},
	{"grant.c", "if (index_of_key(g->delegates, g->count, &added) >= 0) continue;", ""},
	{"grant.c", "if (g->count >= room) return ERR_FULL;", ""},
	{"grant.c", "g->count >= room", "g->count > room"},
	{"grant.c", "!key_equal(&account->owner, program) || ", ""},
	{"grant.c", " || account->size < sizeof *g) return false", ") return false"},
	{"grant.c", "g->magic != GRANT_MAGIC || g", "g"},
	{"grant.c", "g->version != ACCOUNT_VERSION || ", ""},
	{"grant.c", " || g->count > grant_room(account->size)", ""},
	{"grant.c", "key_equal(&g->grantor, join) && ", ""},
	{"grant.c", "key_equal(&g->grantee, client) || ", ""},
	{"grant.c", " || index_of_key(g->delegates, g->count, client) >= 0", ""},
	{"grant.c", "if (!key_equal(&c->third->address, &a.grant)) return INVALID_ARGUMENT;", ""},
	{"grant.c", "!= a.flag) return ERR_GRANT", "!= a.flag && a.flag) return ERR_GRANT"},
	{"grant.c", "!= a.flag) return ERR_GRANT", "!= a.flag && !a.flag) return ERR_GRANT"},
	{"grant.c", "!a.flag || has_room(c, &s->authority, &a)", "true"},
	{"grant.c", "!a.flag || has_room", "has_room"},
	{"grant.c", "&a->id) <= room;", "&a->id) < room;"},
	{"../rules/admit.c", " || key_equal(&x->delegates[0], without)", ""},
	{"../rules/admit.c", "if (key_equal(&grantee, &x->grantee)) count++;", "count++;"},
	{"input.c", " || c->data[9] == ADMIT", ""},
	{"run.c", "by.data[0] == ADMIT && (refused = check_grant(c, &a->state))", "by.data[0] == ADMIT && (refused = 0)"},
	{"free.c", "(*a)->magic != GRANT_MAGIC && ", ""},
	{"../rules/list.c", "seed | 1", "seed & 0"}, // the same results, but many times the compute units
}

// testsOfHost are the tests that must find every mistake.
const testsOfHost = "^Test(Accounts|NoInstruction|Refusals|Revived|FreeOf|Full|Forged|Grant|Life|Replay|Draws|Sets|Proofs)"

// TestHostMutants makes one mistake at a time and checks that a test fails.
func TestHostMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	if *programFile != "" {
		t.Skip("runs inside a mutant")
	}
	if _, _, err := compile.Compiler(t.Context()); err != nil {
		t.Skip(err)
	}
	objects := objectsOf(t)
	for i, m := range hostMutants {
		if !*allMutants && i%20 != 0 {
			continue
		}
		t.Run(m.source+" "+m.old, func(t *testing.T) {
			program := hostMutant(t, objects, m.source, m.old, m.new)
			out, err := exec.CommandContext(t.Context(), os.Args[0], "-test.run", testsOfHost, "-test.failfast", "-program", program).CombinedOutput()
			if _, failed := errors.AsType[*exec.ExitError](err); !failed {
				t.Errorf("no test finds the mistake %q: %v", m.new, err)
			} else if !strings.Contains(string(out), "--- FAIL") {
				t.Errorf("the tests fail for a different reason: %s", out)
			}
		})
	}
}

const (
	programFolder = "../program"
	hostSources   = programFolder + "/chain"
)

// objectsOf compiles all sources of the program.
func objectsOf(t *testing.T) []link.Object {
	t.Helper()
	sources, err := compile.Sources(programFolder)
	if err != nil {
		t.Fatal(err)
	}
	var objects []link.Object
	for _, source := range sources {
		b, err := compile.Object(t.Context(), programFolder, source)
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, link.Object{Name: filepath.Base(source), Bytes: b})
	}
	return objects
}

// hostMutant returns the path of the program with a change in one source.
func hostMutant(t *testing.T, objects []link.Object, name, old, changed string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(hostSources, name))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), old) {
		t.Fatalf("%s does not contain %q: adapt this mutant to the present source", name, old)
	}
	folder := t.TempDir()
	name = filepath.Base(name)
	source := filepath.Join(folder, name)
	if err := os.WriteFile(source, []byte(strings.Replace(string(text), old, changed, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	object, err := compile.Object(t.Context(), programFolder, source, "-Wno-error")
	if err != nil {
		t.Fatal(err)
	}
	all := make([]link.Object, len(objects))
	for i, o := range objects {
		if all[i] = o; o.Name == name {
			all[i].Bytes = object
		}
	}
	elf, err := link.Link(all)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "mutant.so")
	if err := os.WriteFile(path, elf, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
