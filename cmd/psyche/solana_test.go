package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/chain/layout"
	"github.com/psyche-go/psyche/record/invite"
)

// chainAdministrator runs commands against its own chain.
type chainAdministrator struct {
	t       *testing.T
	dir     string
	rpc     string
	program string
}

// startChain starts a chain with short slots and deploys the program.
func startChain(t *testing.T) *chainAdministrator {
	t.Helper()
	if testing.Short() {
		t.Skip("a chain's time passes as it does")
	}
	ctx, stop := context.WithCancel(context.Background())
	in, out := io.Pipe()
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, []string{"chain", "start", "--listen=127.0.0.1:0", "--slot-ms=20"}, console{out, io.Discard})
	}()
	line, err := bufio.NewReader(in).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, in) }()
	t.Cleanup(func() {
		stop()
		<-code
	})
	return &chainAdministrator{t: t, dir: t.TempDir(), rpc: strings.Fields(line)[1]}
}

func (a *chainAdministrator) path(name string) string { return filepath.Join(a.dir, name) }

// key creates a key file with a balance in SOL, and returns its path.
func (a *chainAdministrator) key(n byte, sol string) string {
	a.t.Helper()
	path := a.path(string('a'+rune(n)) + ".json")
	if err := identity.SaveKeyFile(path, identity.FromSeed([identity.SeedSize]byte{n})); err != nil {
		a.t.Fatal(err)
	}
	if sol != "" {
		a.does(exitOK, sol+" SOL", "chain", "airdrop", sol, path)
	}
	return path
}

// does runs a command that must end with the exit code and print a text.
func (a *chainAdministrator) does(want int, text string, args ...string) string {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), time.Minute)
	defer cancel()
	args = append(args, "--rpc", a.rpc)
	if a.program != "" && args[0] != "chain" {
		args = append(args, "--program-id", a.program)
	}
	var out, errs strings.Builder
	code := run(ctx, args, console{&out, &errs})
	output := out.String() + errs.String()
	if code != want {
		a.t.Fatalf("psyche %s: exit code %d, want %d:\n%s", strings.Join(args, " "), code, want, output)
	}
	printed(a.t, code, text, output)
	return output
}

// deploy deploys the program to the chain.
func (a *chainAdministrator) deploy(key string) {
	a.t.Helper()
	out := a.does(exitOK, "the program is at this address", "chain", "deploy", "--yes", "--keypair", key)
	for line := range strings.Lines(out) {
		if line = strings.TrimSpace(line); len(line) > 40 && !strings.Contains(line, " ") {
			a.program = line
		}
	}
	if a.program == "" {
		a.t.Fatalf("no address in:\n%s", out)
	}
	var all, accounts float64
	var transactions int
	_, costs, _ := strings.Cut(out, ", costs ")
	if _, err := fmt.Sscanf(costs, "%f SOL: %f for accounts, which is refunded when they are closed, and", &all, &accounts); err != nil {
		a.t.Fatalf("no costs in:\n%s: %v", out, err)
	}
	_, count, _ := strings.Cut(costs, "SOL: ")
	_, count, _ = strings.Cut(count, " and ")
	if _, err := fmt.Sscanf(count, "%f for %d transactions", new(float64), &transactions); err != nil {
		a.t.Fatalf("no transactions in:\n%s: %v", out, err)
	}
	a.documented(fmt.Sprintf("| the program | %.4f | %.4f of it stays in the program's accounts; %d transactions |", all, accounts, transactions))
}

// documented checks that docs/solana.md contains a line.
func (a *chainAdministrator) documented(line string) {
	a.t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "solana.md"))
	if err != nil {
		a.t.Fatal(err)
	}
	if !strings.Contains(string(text), line) {
		a.t.Errorf("the price in docs/solana.md differs from the paid price: want %q", line)
	}
}

// TestChainAdministration takes a permissioned run on a chain through its whole life cycle.
func TestChainAdministration(t *testing.T) {
	a := startChain(t)
	poor, main, join, grantee := a.key(1, ""), a.key(2, "9"), a.key(3, "1"), a.key(4, "1")
	id := func(n byte) string { return identity.FromSeed([identity.SeedSize]byte{n}).ID().String() }
	a.does(exitRefused, "deploy without SOL", "chain", "deploy", "--keypair", poor, "--yes")
	a.does(exitOK, "0 runs of program", "run", "list")
	a.does(exitUsage, "no confirmation", "chain", "deploy", "--keypair", main)
	create := []string{"run", "create", "--state", sampleState, "--run-id", "p", "--permissioned", "--join-authority", id(3), "--yes"}
	a.program = id(9)
	a.does(exitRefused, "no program", append(create, "--keypair", main)...)
	a.deploy(main)
	a.does(exitOK, "already at this address", "chain", "deploy", "--keypair", main)
	a.does(exitRefused, "create without SOL", append(create, "--keypair", poor)...)
	a.does(exitRefused, "run before it is created", "run", "status", "--run-id", "p")
	out := a.does(exitOK, "it is paused", append(create, "--keypair", main)...)
	if !strings.Contains(out, "2.4615") {
		t.Errorf("no cost before it is paid:\n%s", out)
	}
	const rent = 6960 // lamports per byte; each account pays for 128 more bytes
	a.documented(fmt.Sprintf("| a client's addresses | %.4f |", rent*(128+layout.PeerSize)/1e9))
	a.documented("| a run | 2.4616 | `free` returns 2.46155712 of it;")
	a.does(exitRefused, "create twice", append(create, "--keypair", main)...)
	if out := a.does(exitOK, "state           Paused", "run", "status", "--run-id", "p"); !strings.Contains(out, "2.46155712 SOL") {
		t.Errorf("no account:\n%s", out)
	}
	a.does(exitOK, `"p"  epoch 0  0 steps done  Paused`, "run", "list")

	out = a.does(exitOK, "psyche+solana://", "run", "invite", "--run-id", "p")
	for line := range strings.Lines(out) {
		if link, err := invite.ParseChain(line); invite.IsChain(line) && (err != nil || link.Authority.String() != id(2) || link.Program.String() != a.program || link.RPC[0] != a.rpc || link.RunID != "p") {
			t.Errorf("%s: %+v, %v", line, link, err)
		}
	}
	a.does(exitOK, "other machines cannot reach", "run", "invite", "--run-id", "p", "--authority", id(2), "--qr")
	a.does(exitUsage, "public address", "run", "invite", "--run-id", "p", "--public-addr", "h")

	as := func(key string, args ...string) []string {
		return append(append([]string{"run"}, args...), "--run-id", "p", "--keypair", key, "--commitment", "confirmed")
	}
	a.does(exitRefused, "resume as join authority", as(join, "set-paused", "resume")...)
	a.does(exitOK, "this costs 0.0000", as(main, "update-config", "--config-path", sampleState)...)
	a.does(exitOK, "resumes", as(main, "set-paused", "--resume")...)
	a.does(exitOK, "may join run p", as(join, "authorize", id(4))...)
	a.does(exitOK, "1 delegate may join", as(grantee, "set-delegates", id(5))...)
	a.does(exitRefused, "eject a stranger", as(main, "eject", id(4))...)
	a.does(exitOK, "no tick was due", "run", "tick", "--run-id", "p", "--keypair", grantee)
	a.does(exitOK, "pauses", as(main, "set-paused")...)
	a.does(exitRefused, "free an open run", "run", "free", "--run-id", "p", "--keypair", main, "--yes")
	a.does(exitOK, "Paused", "run", "status", "--run-id", "p")
	a.archives("p", "events, verified; its hash chain matches the account")
	a.readsArchives()
	a.does(exitOK, "is closed", as(main, "close")...)
	a.archives("p", "events, verified; its hash chain matches the account")
	before := a.does(exitOK, "SOL", "chain", "balance", main)
	a.does(exitOK, "2.46155712 SOL went to", "run", "free", "--run-id", "p", "--keypair", main, "--yes")
	if after := a.does(exitOK, "SOL", "chain", "balance", main); after == before {
		t.Errorf("the balance is still %s", after)
	}
	a.does(exitRefused, "freed run", "run", "status", "--run-id", "p")
}

// readsArchives checks that commands that read logs of servers also read an archive.
func (a *chainAdministrator) readsArchives() {
	a.t.Helper()
	file := a.path("p.archive")
	for _, test := range []struct {
		args []string
		want int
		text string
	}{
		{[]string{"run", "receipt", file, "--member", a.program}, exitFailed, "not a member"},
		{[]string{"run", "examine", file, "--entry", "1"}, exitOK, "genesis by "},
	} {
		var out strings.Builder
		code := run(a.t.Context(), test.args, console{&out, &out})
		if code != test.want {
			a.t.Errorf("%v: exit code %d: %s", test.args, code, out.String())
		}
		printed(a.t, code, test.text, out.String())
	}
}

// archives archives the log of a run, replays it, and checks that a change of the archive is
// detected.
func (a *chainAdministrator) archives(runID, want string) {
	a.t.Helper()
	file := a.path(runID + ".archive")
	a.does(exitOK, want, "run", "archive", "--run-id", runID, "--output", file, "--once", "--commitment", "confirmed")
	replay := func(path string) (int, string) {
		var out strings.Builder
		code := run(a.t.Context(), []string{"run", "replay", "--states", path}, console{&out, &out})
		return code, out.String()
	}
	if code, out := replay(file); code != exitOK || !strings.Contains(out, "genesis") {
		a.t.Fatalf("replay: exit code %d:\n%s", code, out)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		a.t.Fatal(err)
	}
	damaged := a.path("damaged")
	content = bytes.Clone(content)
	content[len(content)/2] ^= 1
	if err := os.WriteFile(damaged, content, 0o600); err != nil {
		a.t.Fatal(err)
	}
	if code, out := replay(damaged); code != exitUnverified {
		a.t.Errorf("replay of a damaged archive: exit code %d:\n%s", code, out)
	}
}

// TestPublishedSolanaCommands runs the commands of the original Psyche's documentation, with their
// original names.
func TestPublishedSolanaCommands(t *testing.T) {
	a := startChain(t)
	main, other := a.key(1, "9"), a.key(2, "3") // the program is already deployed
	id := func(n byte) string { return identity.FromSeed([identity.SeedSize]byte{n}).ID().String() }
	as := func(key string, args ...string) []string {
		return append(append([]string{"solana"}, args...), "--run-id", "r", "--wallet-private-key-path", key)
	}
	a.does(exitOK, "to configure it: psyche run update-config", as(main, "create-run", "--yes")...)
	a.does(exitOK, "it is paused", as(main, "update-config", "--config-path", sampleState, "--name", "N", "--description", "D", "--yes")...)
	a.does(exitOK, "resumes", as(main, "set-paused", "--resume", "--commitment", "confirmed")...)
	a.does(exitOK, `"run_id": "r"`, "solana", "json-dump-run", "--run-id", "r")
	a.does(exitOK, `"name": "N"`, "solana", "json-dump-run", "--run-id", "r")
	a.does(exitOK, "admits every key", "solana", "join-authorization-read", "--run-id", "r", "--authorizer", id(2))
	a.does(exitRefused, "authorize in an open run", as(main, "join-authorization-create", "--authorizer", other)...)
	a.does(exitRefused, "delegates in an open run", as(main, "join-authorization-delegate", "--delegates-added", id(7))...)

	// A second run of the same name is distinguished by its authority.
	a.does(exitOK, "is on the chain", append(as(other, "create-run"), "--config-path", sampleState, "--permissioned", "--yes")...)
	out := a.does(exitRefused, "several runs of a name", "solana", "json-dump-run", "--run-id", "r")
	if !strings.Contains(out, id(1)) || !strings.Contains(out, id(2)) {
		t.Errorf("not both authorities are named:\n%s", out)
	}
	second := func(key string, args ...string) []string {
		return append(as(key, args...), "--authority", id(2), "--commitment", "confirmed")
	}
	a.does(exitRefused, "delegates before authorization", second(main, "join-authorization-delegate", "--delegates-added", id(7))...)
	a.does(exitOK, "may join run r", second(other, "join-authorization-create", "--authorizer", main)...)
	a.does(exitOK, "1 delegate may join", second(main, "join-authorization-delegate", "--delegates-added", id(7))...)
	a.does(exitOK, "2 delegates", second(main, "join-authorization-delegate", "--delegates-added", id(8))...)
	a.does(exitOK, "and 2 keys on its behalf: "+id(7), "solana", "join-authorization-read", "--run-id", "r", "--authorizer", id(1), "--authority", id(2))
	a.does(exitOK, "1 delegate may join", second(main, "join-authorization-delegate", "--delegates-clear", "true", "--delegates-added", id(9))...)
	a.does(exitOK, "may no longer join", second(other, "join-authorization-delete", "--authorizer", main)...)
	a.does(exitOK, "SOL went to", second(other, "close-run")...)
}

// TestChainFlags checks that invalid flags are refused.
func TestChainFlags(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
	}{
		{"no server and no chain", []string{"run", "status", "--run-id", "r"}},
		{"server and chain", []string{"run", "status", "--run-id", "r", "--rpc", "http://127.0.0.1:1", "--server-addr", "127.0.0.1:2"}},
		{"two nodes and one WebSocket", []string{"run", "list", "--rpc", "http://127.0.0.1:1,http://127.0.0.1:2", "--ws-rpc", "ws://127.0.0.1:1"}},
		{"four nodes", []string{"run", "list", "--rpc", "http://a,http://b,http://c,http://d"}},
		{"node without http", []string{"run", "list", "--rpc", "127.0.0.1:1"}},
		{"program", []string{"run", "list", "--rpc", "http://127.0.0.1:1", "--program-id", "x"}},
		{"airdrop of 0", []string{"chain", "airdrop", "0", "--rpc", "http://127.0.0.1:1"}},
		{"long run id", []string{"run", "status", "--run-id", strings.Repeat("r", 33), "--rpc", "http://127.0.0.1:1"}},
	} {
		var out strings.Builder
		if code := run(t.Context(), test.args, console{&out, &out}); code != exitUsage {
			t.Errorf("psyche %s: exit code %d, want %d:\n%s", strings.Join(test.args, " "), code, exitUsage, out.String())
		} else {
			printed(t, code, test.name, out.String())
		}
	}
}
