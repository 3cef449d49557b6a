package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/backend"
)

// TestRunInThreeSteps creates a permissioned run as the documentation of the original Psyche
// does: create-run without a configuration, update-config, set-paused. Its join authority then admits
// a key to all of its runs.
func TestRunInThreeSteps(t *testing.T) {
	a := startChain(t)
	main, join, grantee := a.key(1, "9"), a.key(2, "1"), a.key(3, "1")
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
	for _, want := range []string{"2.41990848 SOL", `"N"`, `"D"`, id(1), "join authority  " + id(2), "psyche run update-config --state FILE --run-id r", "psyche run free --run-id r"} {
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
	a.does(exitOK, "2.41990848 SOL went to", "run", "free", "--run-id", strings.Repeat("r", 32), "--keypair", main, "--yes")
	a.does(exitRefused, "no run of the join authority", as(join, "join-authorization-create", "--authorizer", grantee)...)

	a.does(exitOK, "it is paused", append(as(main, "update-config", "--config-path", sampleState, "--run-id", "r", "--yes"), "--description", "E")...)
	a.does(exitOK, "resumes", of("r", main, "set-paused", "--resume")...)
	dump := a.does(exitOK, `"name": "N"`, "solana", "json-dump-run", "--run-id", "r")
	for _, want := range []string{`"description": "E"`, `"permissioned": true`, id(2)} {
		if !strings.Contains(dump, want) {
			t.Errorf("the run does not contain %q:\n%s", want, dump)
		}
	}
	a.does(exitOK, "1 run of program", "run", "list")

	a.does(exitOK, "may join run r", as(join, "join-authorization-create", "--authorizer", grantee, "--commitment", "confirmed")...)
	a.does(exitOK, "it is paused", create("s", "--config-path", sampleState, "--join-authority", id(2))...)
	out := a.does(exitOK, "may join run s", as(join, "join-authorization-create", "--authorizer", grantee, "--commitment", "confirmed")...)
	golden.Message(t, "authorization of two runs", errors.New(differing.ReplaceAllString(strings.TrimSuffix(out, "\n"), "…")))
	a.does(exitUsage, "delegates without a run", as(grantee, "join-authorization-delegate", "--delegates-added", id(7))...)
	out = a.does(exitOK, "1 delegate may join run r", as(grantee, "join-authorization-delegate", "--join-authority", id(2), "--delegates-added", id(7), "--commitment", "confirmed")...)
	golden.Message(t, "delegate of two runs", errors.New(differing.ReplaceAllString(strings.TrimSuffix(out, "\n"), "…")))
	out = a.does(exitOK, "may join run r, and 1 key on its behalf: "+id(7), "solana", "join-authorization-read", "--join-authority", id(2), "--authorizer", id(3))
	golden.Message(t, "rights in two runs", errors.New(differing.ReplaceAllString(strings.TrimSuffix(out, "\n"), "…")))
	a.does(exitOK, "may no longer join run s", as(join, "join-authorization-delete", "--authorizer", grantee, "--commitment", "confirmed")...)
	a.does(exitRefused, "revoked authorization", "solana", "join-authorization-read", "--join-authority", id(2), "--authorizer", id(3))
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
