package main

import (
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/chain/admin"
	"github.com/psyche-go/psyche/chain/solana"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/cmd/internal/onchain"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/backend"
)

// TestRunInThreeSteps creates a permissioned run as the documentation of the original Psyche
// does: create-run without a configuration, update-config, set-paused. Its join authority then admits
// a key to all of its runs.
func TestRunInThreeSteps(t *testing.T) {
	a := startChain(t)
	main := a.key(1, "9")
	a.key(2, "1")
	a.key(3, "1")
	id := func(n byte) string { return identity.FromSeed([identity.SeedSize]byte{n}).ID().String() }
	as := func(key string, args ...string) []string {
		return append(append([]string{"solana"}, args...), "--wallet-private-key-path", key)
	}
	of := func(runID string, key string, args ...string) []string {
		return append(as(key, args...), "--run-id", runID, "--commitment", "confirmed")
	}
	create := func(runID string, args ...string) []string {
		return append(as(main, "create-run", "--run-id", runID, "--yes"), args...)
	}
	a.does(exitUsage, "resume without a state", create("r", "--resume-from", "x")...)
	a.does(exitUsage, "short join authority", create("r", "--join-authority", "x")...)
	a.does(exitUsage, "long name", create("r", "--name", strings.Repeat("n", 65))...)
	longest := []string{"--name", strings.Repeat("n", 64), "--description", strings.Repeat("d", 280), "--join-authority", id(2)}
	a.does(exitOK, "to configure it: psyche run update-config", create(strings.Repeat("r", 32), longest...)...)
	a.does(exitOK, "to configure it: psyche run update-config", create("r")...)
	a.does(exitOK, "to configure it: psyche run update-config", create("r", "--name", "M", "--join-authority", id(2))...)
	a.does(exitOK, "to configure it: psyche run update-config", create("r", "--name", "N", "--description", "D")...)

	status := a.does(exitOK, "not configured yet", "run", "status", "--run-id", "r")
	for _, want := range []string{"2.46155712 SOL", `"N"`, `"D"`, id(1), "join authority  " + id(2), "psyche run update-config --state FILE --run-id r", "psyche run free --run-id r"} {
		if !strings.Contains(status, want) {
			t.Errorf("status without %q:\n%s", want, status)
		}
	}
	a.does(exitRefused, "resume before configuration", of("r", main, "set-paused", "--resume")...)
	a.does(exitRefused, "dump before configuration", "solana", "json-dump-run", "--run-id", "r")
	a.does(exitRefused, "eject before configuration", "run", "eject", id(3), "--run-id", "r", "--keypair", main, "--authority", id(1))
	a.does(exitRefused, "other authority", "run", "eject", id(3), "--run-id", "r", "--keypair", main, "--authority", id(2))
	if list := a.does(exitOK, "0 runs of program", "run", "list"); strings.Count(list, "not configured yet") != 2 {
		t.Errorf("list:\n%s", list)
	}
	a.does(exitOK, "2.46155712 SOL went to", "run", "free", "--run-id", strings.Repeat("r", 32), "--keypair", main, "--yes")

	a.does(exitOK, "it is paused", append(as(main, "update-config", "--config-path", sampleState, "--run-id", "r", "--yes"), "--description", "E")...)
	a.does(exitOK, "resumes", of("r", main, "set-paused", "--resume")...)
	dump := a.does(exitOK, `"name": "N"`, "solana", "json-dump-run", "--run-id", "r")
	for _, want := range []string{`"description": "E"`, `"permissioned": true`, id(2)} {
		if !strings.Contains(dump, want) {
			t.Errorf("the run does not contain %q:\n%s", want, dump)
		}
	}
	a.does(exitOK, "1 run of program", "run", "list")

	testAuthorizationForAll(a, as, create)
}

// testAuthorizationForAll continues TestRunInThreeSteps: one authorization admits a key and eight
// delegates to run r and to a run that starts later.
func testAuthorizationForAll(a *chainAdministrator, as, create func(string, ...string) []string) {
	a.t.Helper()
	join, grantee := a.path("c.json"), a.path("d.json")
	id := func(n byte) string { return identity.FromSeed([identity.SeedSize]byte{n}).ID().String() }
	fast := func(key string, args ...string) []string {
		return append(as(key, args...), "--commitment", "confirmed")
	}
	delegates := func(clears bool, numbers ...byte) []string {
		args := fast(grantee, "join-authorization-delegate", "--join-authority", id(2))
		if clears {
			args = append(args, "--delegates-clear", "true")
		}
		for _, n := range numbers {
			args = append(args, "--delegates-added", id(n))
		}
		return args
	}
	read := []string{"solana", "join-authorization-read", "--join-authority", id(2), "--authorizer", id(3)}
	a.does(exitRefused, "authorization that does not exist", read...)
	a.does(exitUsage, "too many delegates wanted", fast(join, "join-authorization-create", "--authorizer", grantee, "--max-delegates", "257")...)
	a.does(exitUsage, "authorization of all keys", fast(join, "join-authorization-create", "--authorizer", strings.Repeat("1", 32))...)
	a.does(exitOK, "also later ones", as(join, "join-authorization-create", "--authorizer", grantee, "--max-delegates", "8")...)
	a.does(exitOK, "may already join every run", fast(join, "join-authorization-create", "--authorizer", grantee)...)
	a.does(exitOK, "it is paused", create("s", "--config-path", sampleState, "--join-authority", id(2))...)

	a.does(exitUsage, "delegates without a run", fast(grantee, "join-authorization-delegate", "--delegates-added", id(20))...)
	a.does(exitOK, "8 delegates may join every run", delegates(false, 20, 21, 22, 23, 24, 25, 26, 27)...)
	a.does(exitRefused, "delegates without space", delegates(false, 28)...)
	a.does(exitOK, "and 8 keys on its behalf: "+id(20), read...)
	for _, runID := range []string{"r", "s"} {
		for _, n := range []byte{3, 20, 27} {
			a.joins(n, runID, "", nil)
		}
		a.joins(26, runID, id(3), nil)
		a.joins(25, runID, id(20), coordinator.ErrNotAuthorised) // does not name the authorized key
		a.joins(28, runID, "", coordinator.ErrNotAuthorised)
	}
	a.does(exitOK, "by an authorization for all runs", "solana", "join-authorization-read", "--run-id", "s", "--authorizer", id(27))

	a.does(exitOK, id(27)+", by the authorization of "+id(3)+" for all runs", "run", "status", "--run-id", "s")
	a.does(exitOK, `"authorizer": "`+id(3)+`"`, "run", "status", "--run-id", "s", "--json")
	out := a.does(exitOK, id(27)+" may no longer join run s", delegates(true, 20, 21)...)
	if strings.Contains(out, id(20)) || !strings.Contains(out, id(26)+" may no longer join run r") {
		a.t.Errorf("removed delegates:\n%s", out)
	}
	golden.Message(a.t, "removed delegates", errors.New(differing.ReplaceAllString(strings.TrimSuffix(out, "\n"), "…")))
	a.joins(27, "s", "", coordinator.ErrNotAuthorised)
	out = a.does(exitOK, "may no longer join run s", fast(join, "join-authorization-delete", "--authorizer", grantee)...)
	golden.Message(a.t, "end of the authorization for all runs", errors.New(differing.ReplaceAllString(strings.TrimSuffix(out, "\n"), "…")))
	for _, n := range []byte{3, 20, 21} {
		a.joins(n, "r", "", coordinator.ErrNotAuthorised)
	}
	a.does(exitRefused, "authorization that ended", fast(join, "join-authorization-delete", "--authorizer", grantee)...)
	a.archives("r", "events, verified; its hash chain matches the account")
	var entries strings.Builder
	for n := 4; !strings.Contains(entries.String(), "ends by the grant"); n++ {
		if code := run(a.t.Context(), []string{"run", "examine", a.path("r.archive"), "--entry", strconv.Itoa(n)}, console{&entries, &entries}); code != exitOK {
			a.t.Fatalf("no admission ends:\n%s", &entries)
		}
	}
	if !strings.Contains(entries.String(), "admission       of "+id(3)+" begins by the grant ") {
		a.t.Errorf("no admission begins:\n%s", &entries)
	}

	// Authorizations for single runs remain possible.
	one := func(key string, args ...string) []string { return append(fast(key, args...), "--run-id", "s") }
	a.does(exitOK, "may join run s", one(join, "join-authorization-create", "--authorizer", grantee)...)
	a.does(exitRefused, "five delegates in one run", one(grantee, "join-authorization-delegate", "--delegates-added", strings.Join([]string{id(20), id(21), id(22), id(23), id(24)}, ","))...)
	a.does(exitOK, "1 delegate may join run s", one(grantee, "join-authorization-delegate", "--delegates-added", id(22))...)
	a.joins(22, "s", "", nil)
	a.does(exitOK, "may no longer join run s", fast(join, "join-authorization-delete", "--authorizer", grantee)...)

	a.does(exitOK, "also later ones", fast(join, "join-authorization-create", "--authorizer", grantee, "--max-delegates", "0")...)
	a.joins(3, "r", "", nil)
	_, under, _ := strings.Cut(a.does(exitOK, "under the grantee", "run", "status", "--run-id", "r"), "under the grantee ")
	a.does(exitOK, "may no longer join run r", "run", "authorize", strings.Fields(under)[0], "--revoke", "--run-id", "r", "--keypair", join, "--commitment", "confirmed")
	if state := a.does(exitOK, "r", "run", "status", "--run-id", "r"); strings.Contains(state, "under the grantee") {
		a.t.Errorf("an admission remains:\n%s", state)
	}
	a.joins(3, "r", "", nil) // the grant still covers the key
	a.interruptedDelete(join, grantee)
	a.does(exitOK, id(3)+" may no longer join run r", fast(join, "join-authorization-delete", "--authorizer", grantee)...)
}

// interruptedDelete closes the grant of one key to another, as an interrupted
// join-authorization-delete does. It also checks that a command ignores admissions that another key has just ended.
func (a *chainAdministrator) interruptedDelete(joinFile, granteeFile string) {
	a.t.Helper()
	join, err := identity.LoadKeyFile(joinFile)
	if err != nil {
		a.t.Fatal(err)
	}
	grantee, err := keyOrFile(granteeFile)
	if err != nil {
		a.t.Fatal(err)
	}
	flags := hostFlags{RunFlags: onchain.RunFlags{Flags: onchain.Flags{RPC: []string{a.rpc}, ProgramID: a.program, MaxPrice: onchain.DefaultMaxPrice}}}
	o, err := flags.Options(join, slog.New(slog.DiscardHandler))
	if err != nil {
		a.t.Fatal(err)
	}
	chain, err := admin.Open(o)
	if err != nil {
		a.t.Fatal(err)
	}
	defer chain.Close()
	grant, err := chain.Grant(a.t.Context(), o.Program, chain.Payer(), transaction.PublicKey(grantee))
	if err == nil {
		err = chain.FreeGrant(a.t.Context(), o.Program, &grant)
	}
	if err != nil {
		a.t.Fatal(err)
	}
	acts := grantActs{grantRuns: grantRuns{hostFlags: flags}, signFlags: signFlags{Keypair: joinFile}, Commitment: "confirmed"}
	gone := coordinator.Admit{Grant: coordinator.ClientID(grant.At), Client: coordinator.ClientID{8}}
	var out strings.Builder
	if err := acts.release(a.t.Context(), console{&out, &out}, "r", flags, gone.Grant, []coordinator.ClientID{gone.Client}); err != nil {
		a.t.Errorf("end of an admission that has just ended: %v", err)
	}
}

// joins joins a run as a client with a key. want is the expected error.
func (a *chainAdministrator) joins(n byte, runID, authorizer string, want error) {
	a.t.Helper()
	key := identity.FromSeed([identity.SeedSize]byte{n})
	if n != 3 { // which has a key file with a balance
		a.does(exitOK, " SOL", "chain", "airdrop", "1", key.ID().String())
	}
	flags := onchain.RunFlags{Flags: onchain.Flags{RPC: []string{a.rpc}, ProgramID: a.program, MaxPrice: onchain.DefaultMaxPrice}}
	o, err := flags.Options(key, slog.New(slog.DiscardHandler))
	if err != nil {
		a.t.Fatal(err)
	}
	if authorizer != "" {
		if o.Authorizer, err = transaction.ParsePublicKey(authorizer); err != nil {
			a.t.Fatal(err)
		}
	}
	if err := flags.Find(a.t.Context(), &o, runID); err != nil {
		a.t.Fatal(err)
	}
	client, err := solana.Dial(a.t.Context(), o)
	if err != nil {
		a.t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	update, err := firstUpdate(a.t.Context(), client)
	if err == nil {
		err = client.Submit(a.t.Context(), coordinator.Join{Epoch: update.State.Progress.Epoch})
	}
	if !errors.Is(err, want) {
		a.t.Errorf("key %d joins run %s: %v, want %v", n, runID, err, want)
	}
}

// endedHost is the host of a run whose connection ended.
type endedHost struct {
	runHost
	err error
}

func (h endedHost) Updates() <-chan backend.Update {
	ended := make(chan backend.Update)
	close(ended)
	return ended
}

func (h endedHost) Err() error { return h.err }

// TestNoFirstUpdate checks that a host that shows no state is an error, even if the host gives no
// reason.
func TestNoFirstUpdate(t *testing.T) {
	for host, want := range map[endedHost]error{
		{}:                               backend.ErrDisconnected,
		{err: coordinator.ErrWrongState}: coordinator.ErrWrongState,
	} {
		if update, err := firstUpdate(t.Context(), host); !errors.Is(err, want) || update.State != nil {
			t.Errorf("%v: %v, want %v", update, err, want)
		}
	}
}
