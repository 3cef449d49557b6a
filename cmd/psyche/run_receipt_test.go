package main

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/chain/archive"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/face/dash/dashtest"
	"github.com/psyche-go/psyche/face/dash/history"
	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/record/follow"
	"github.com/psyche-go/psyche/record/receipt"
)

// played writes the journal of a run with a cheat and returns the history that the page shows.
func played(t *testing.T) (string, history.History) {
	t.Helper()
	o := dashtest.Options{RunID: "judged", Members: 12, Rounds: 40, RoundsPerEpoch: 20, Audits: 25, Cheat: 4, Slander: 7, Name: "Ada"}
	path := filepath.Join(t.TempDir(), "judged.journal")
	var h history.History
	if err := dashtest.Write(path, o); err != nil {
		t.Fatal(err)
	}
	err := dashtest.Play(o, func(e history.Entry, s *coordinator.State) error { h.See(e, s); return nil })
	if err != nil {
		t.Fatal(err)
	}
	return path, h
}

// onLog executes a command of psyche run on a log and checks its exit code and its output, as [printed]
// does.
func onLog(t *testing.T, want int, text string, args ...string) {
	t.Helper()
	var out, errs strings.Builder
	code := run(t.Context(), append([]string{"run"}, args...), console{&out, &errs})
	output := out.String() + errs.String()
	if code != want {
		t.Errorf("%q: exit code %d, want %d:\n%s", args, code, want, output)
	}
	printed(t, code, text, output)
}

// TestReceiptsAddUp checks that the receipts of all members together equal the run's totals, that
// each receipt equals the page's data about the member, and that the hash is the log's hash.
func TestReceiptsAddUp(t *testing.T) {
	path, h := played(t)
	books := make([]*receipt.Book, 12)
	for i := range books {
		books[i] = receipt.NewBook(dashtest.Key(i).ID())
	}
	var last [32]byte
	log, summary, err := server.Replay(path, func(r follow.Record, s *coordinator.State) error {
		e := receipt.EntryOf(last, r)
		last = e.Head
		for _, book := range books {
			book.See(e, s)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	tokens := uint64(0)
	for i, book := range books {
		r := book.Receipt()
		tokens += r.Tokens
		m := h.Members[dashtest.Key(i).ID().String()]
		if r.Rounds != m.Counted || r.Witnessed != m.Witnessed || r.Voted != m.Voted || r.AllTokens != h.Tokens {
			t.Errorf("member %d: receipt %+v, the page shows %+v", i, r, m)
		}
		head := log.Head().Hash
		if r.Head != hex.EncodeToString(head[:]) || summary.Last != head || r.Entries != uint64(summary.Entries) {
			t.Errorf("the receipt ends with entry %d, %s, the log with %d, %x", r.Entries, r.Head, summary.Entries, head)
		}
		if r.ModelStep != 40 || r.InModel != r.Rounds || r.TokensInModel != r.Tokens || r.Rounds == 0 {
			t.Errorf("member %d: in the model is %+v", i, r)
		}
	}
	if tokens != h.Tokens {
		t.Errorf("receipts have %d tokens, the run %d", tokens, h.Tokens)
	}
}

// TestRunReceipt checks that a written receipt verifies against the log and against a longer log.
// With any value changed, and against a different log, it does not verify.
func TestRunReceipt(t *testing.T) {
	path, _ := played(t)
	dir := t.TempDir()
	file, member := filepath.Join(dir, "mine.json"), dashtest.Key(2).ID().String()
	does := func(want int, text string, args ...string) {
		t.Helper()
		onLog(t, want, text, append([]string{"receipt"}, args...)...)
	}
	does(exitOK, "to verify it: psyche run receipt", path, "--member", member, "--output", file)
	does(exitFailed, "existing file", path, "--member", member, "--output", file)
	badge := filepath.Join(dir, "mine.svg")
	does(exitOK, "valid, up to entry", path, "--verify", file, "--badge", badge)
	if svg, err := os.ReadFile(badge); err != nil || !bytes.HasPrefix(svg, []byte("<svg ")) {
		t.Errorf("%v, badge %s", err, svg)
	}
	does(exitFailed, "existing badge", path, "--member", member, "--badge", badge)
	does(exitOK, "member          "+dashtest.Key(0).ID().String()+", display name \"Ada\"\nuntil", path, "--member", dashtest.Key(0).ID().String())
	does(exitOK, "member          "+member+"\nuntil", path, "--member", member)
	does(exitFailed, "not a member", path, "--member", dashtest.Key(99).ID().String())
	does(exitUsage, "neither member nor receipt", path)
	does(exitUsage, "output of a verification", path, "--verify", file, "--output", file+"2")
	does(exitOK, "member          "+member+"\nuntil", path, "--member", member[:8])
	does(exitOK, "member          "+dashtest.Key(0).ID().String()+", display name", path, "--member", "Ada")
	does(exitUsage, "unknown name", path, "--member", "Bob")
	does(exitUsage, "short beginning", path, "--member", member[:3])

	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r, err := receipt.Decode(whole)
	if err != nil {
		t.Fatal(err)
	}
	for i, change := range []func(r *receipt.Receipt){
		func(r *receipt.Receipt) { r.Tokens++ }, func(r *receipt.Receipt) { r.Entries-- }, func(r *receipt.Receipt) { r.Entries += 1000 },
		func(r *receipt.Receipt) { r.Head = strings.Repeat("00", 32) }, func(r *receipt.Receipt) { r.Member = dashtest.Key(3).ID().String() },
	} {
		forged := r
		change(&forged)
		name := filepath.Join(dir, []string{"tokens", "less", "more", "head", "member"}[i])
		if err := os.WriteFile(name, forged.Encode(), 0o600); err != nil {
			t.Fatal(err)
		}
		does(exitUnverified, filepath.Base(name), path, "--verify", name)
	}
	if err := os.WriteFile(file, bytes.TrimSpace(whole), 0o600); err != nil {
		t.Fatal(err)
	}
	does(exitUnverified, "cut end", path, "--verify", file)

	// For a log that continues: the log of the same run, cut at an entry.
	book, cut := receipt.NewBook(dashtest.Key(2).ID()), receipt.Receipt{}
	_, err = readLog(path, io.Discard, func(e logEntry, s *coordinator.State) {
		book.See(e.Entry, s)
		if now := book.Receipt(); now.Entries == r.Entries/2 {
			cut = now
		}
	})
	early := filepath.Join(dir, "early.json")
	if err != nil || os.WriteFile(early, cut.Encode(), 0o600) != nil {
		t.Fatal(err)
	}
	does(exitOK, fmt.Sprintf("valid, up to entry %d of %d", r.Entries/2-1, r.Entries), path, "--verify", early)
	other := filepath.Join(dir, "other.journal")
	if err := dashtest.Write(other, dashtest.Options{RunID: "other", Members: 4, Rounds: 4, RoundsPerEpoch: 4}); err != nil {
		t.Fatal(err)
	}
	does(exitUnverified, "other run", other, "--verify", early)
}

// archived writes the archive of a run on a chain with a cheat and returns its path and its header.
func archived(t *testing.T, runID string) (string, archive.Header) {
	t.Helper()
	path := filepath.Join(t.TempDir(), runID+".archive")
	o := dashtest.Options{RunID: runID, Members: 12, Rounds: 40, RoundsPerEpoch: 20, Audits: 25, Cheat: 4, Slander: 7, Name: "Ada"}
	header, err := dashtest.WriteArchive(path, o)
	if err != nil {
		t.Fatal(err)
	}
	return path, header
}

// TestChainReceiptsAddUp checks that the receipts of all members of a run on a chain together equal
// the page's data about the run.
func TestChainReceiptsAddUp(t *testing.T) {
	path, header := archived(t, "judged")
	var h history.History
	tokens := uint64(0)
	books := make([]*receipt.Book, 12)
	for i := range books {
		books[i] = receipt.NewBook(dashtest.Key(i).ID())
	}
	log, err := readLog(path, io.Discard, func(e logEntry, s *coordinator.State) {
		h.See(history.Entry{Number: e.number, Time: e.Time, Actor: e.Actor, Action: e.Action}, s)
		for _, book := range books {
			book.See(e.Entry, s)
		}
	})
	if err != nil || log.run != header.RunHash() || log.state.RunState != coordinator.Finished {
		t.Fatalf("run %x, %s, %v", log.run, log.state.RunState, err)
	}
	for i, book := range books {
		r, m := book.Receipt(), h.Members[dashtest.Key(i).ID().String()]
		if tokens += r.Tokens; r.Rounds != m.Counted || r.Witnessed != m.Witnessed || r.AllTokens != h.Tokens || r.Entries != log.last || r.ModelStep != 40 {
			t.Errorf("member %d: receipt %+v, the page shows %+v", i, r, m)
		}
	}
	if tokens != h.Tokens || tokens == 0 {
		t.Errorf("receipts have %d tokens, the run %d", tokens, h.Tokens)
	}
}

// TestChainReceiptVerifies checks that the receipt of a member verifies against the archive of its run
// on a chain. A receipt with a changed number, the archive of another run, and a damaged archive are refused.
func TestChainReceiptVerifies(t *testing.T) {
	path, header := archived(t, "judged")
	log, err := readLog(path, io.Discard, func(logEntry, *coordinator.State) {})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file, more := filepath.Join(dir, "mine.json"), filepath.Join(dir, "more.json")
	onLog(t, exitOK, "the account "+header.Run.String()+" on the chain has the head", "receipt", path, "--member", dashtest.Key(2).ID().String(), "--output", file)
	onLog(t, exitOK, fmt.Sprintf("valid, up to entry %d of %d", log.last, log.entries), "receipt", path, "--verify", file)
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(more, bytes.Replace(whole, []byte(`"rounds": `), []byte(`"rounds": 1`), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	onLog(t, exitUnverified, "more rounds", "receipt", path, "--verify", more)
	other, _ := archived(t, "other")
	onLog(t, exitUnverified, "other run", "receipt", other, "--verify", file)
	entries, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	entries[len(entries)/2] ^= 1
	if err := os.WriteFile(path, entries, 0o600); err != nil {
		t.Fatal(err)
	}
	onLog(t, exitUnverified, "damaged log", "receipt", path, "--verify", file)
}

// TestExamineChainArchive checks that examine finds the accusation of a cheat, the jury's verdict and
// the genesis in the archive of a run on a chain.
func TestExamineChainArchive(t *testing.T) {
	path, _ := archived(t, "judged")
	accused := uint64(0)
	_, err := readLog(path, io.Discard, func(e logEntry, _ *coordinator.State) {
		if a, ok := e.Action.(coordinator.Accuse); ok && a.Client == coordinator.ClientID(dashtest.Key(4).ID()) && accused == 0 {
			accused = e.number
		}
	})
	if err != nil || accused == 0 {
		t.Fatalf("entry %d, %v", accused, err)
	}
	onLog(t, exitOK, "a jury found it guilty", "examine", path, "--entry", fmt.Sprint(accused))
	onLog(t, exitOK, "accuse by", "examine", path, "--entry", fmt.Sprint(accused))
	onLog(t, exitOK, "genesis by "+dashtest.Key(-1).ID().String()+" in slot 1", "examine", path, "--entry", "1")
	onLog(t, exitUsage, "header", "examine", path, "--entry", "0")
}

// TestBadgeEntry checks that a badge names the same entry as the text: the entries of a chain's log are numbered from 1.
func TestBadgeEntry(t *testing.T) {
	for _, c := range []struct {
		last uint64
		want string
	}{{9, "log entry 9,"}, {8, "log entry 8,"}} {
		path := filepath.Join(t.TempDir(), "badge.svg")
		command := runReceipt{Badge: path}
		if err := command.draw(receipt.Receipt{Entries: 9}, "Ada", &logEnd{entries: 9, last: c.last}, console{out: io.Discard}); err != nil {
			t.Fatal(err)
		}
		if svg, err := os.ReadFile(path); err != nil || !strings.Contains(string(svg), c.want) {
			t.Errorf("no %q in\n%s, %v", c.want, svg, err)
		}
	}
}
