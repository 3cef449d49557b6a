package verify_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/chain/archive"
	"github.com/psyche-go/psyche/chain/event"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/face/dash/dashtest"
	"github.com/psyche-go/psyche/face/dash/verify"
)

func archiveOf(t testing.TB, o dashtest.Options) ([]byte, archive.Header) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "archive")
	header, err := dashtest.WriteArchive(path, o)
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return log, header
}

// TestSoundArchive verifies the archive of a run on a chain, and describes the run.
func TestSoundArchive(t *testing.T) {
	log, header := archiveOf(t, options())
	r, v := check(log, verify.Told{})
	if !r.Verified || r.Records != len(entries(t, log)) || r.Bytes != int64(len(log)) || r.Host != "" || r.Authority != dashtest.Key(-1).ID().String() {
		t.Errorf("found %+v", r)
	}
	if c := r.Chain; c == nil || c.Account != header.Run.String() || c.Program != header.Program.String() || c.Event == 0 || len(c.Head) != 64 {
		t.Fatalf("facts of the chain: %+v", c)
	}
	if r.Signatures != r.Records-1 { // each transaction of such a run has one
		t.Errorf("%d signatures of %d entries", r.Signatures, r.Records)
	}
	if got := v.Event(r.Chain.Head); got != r.Chain.Event {
		t.Errorf("event %d of the newest head, want %d", got, r.Chain.Event)
	}
	for _, head := range []string{"", "zz", r.Chain.Head[2:], strings.Repeat("00", 32)} {
		if got := v.Event(head); got != 0 {
			t.Errorf("head %q has event %d", head, got)
		}
	}
	shown := v.Show(0)
	if shown.Status.State != "Finished" || shown.Status.StateHash != r.State || len(shown.History.Members) != *members || shown.Status.RunHash != "" {
		t.Errorf("it shows %+v", shown.Status)
	}
	if names := shown.Status.Names; len(names) != 1 || names[dashtest.Key(0).ID().String()] != "Ada" {
		t.Errorf("it names %q", names)
	}
	if shown.Costs == nil || shown.Costs.Transactions != r.Signatures || shown.Costs.Lamports == 0 || shown.Costs.Head != r.Chain.Head {
		t.Errorf("the chain was paid %+v", shown.Costs)
	}
	if again, _ := check(log, verify.Told{Run: r.Run, Records: r.Records, Head: r.Head, State: r.State}); !again.Verified {
		t.Errorf("with the reported facts: %+v", again)
	}
	if torn, _ := check(log[:len(log)-3], verify.Told{}); !torn.Verified || torn.Torn == 0 || torn.Records != r.Records-1 {
		t.Errorf("for a torn archive: %+v", torn)
	}
}

// act is the place of an action of a member in the second half of an archive's entries.
func act(t *testing.T, all [][]byte) (at int, e event.Event, signed transaction.Transaction) {
	t.Helper()
	for at := len(all) / 2; at < len(all); at++ {
		e, err := event.Decode(all[at][9:][:event.Size])
		if err != nil {
			t.Fatal(err)
		}
		if e.Instruction != event.Act {
			continue
		}
		signed, err := transaction.Unmarshal(all[at][9+event.Size:])
		if err != nil {
			t.Fatal(err)
		}
		return at, e, signed
	}
	t.Fatal("no member acts")
	return 0, e, signed
}

// asAnother is an action that somebody else did, with the head that the program would have logged.
func asAnother(t *testing.T, all [][]byte) []byte {
	t.Helper()
	at, e, signed := act(t, all)
	before, err := event.Decode(all[at-1][9:][:event.Size])
	if err != nil {
		t.Fatal(err)
	}
	in, key := signed.Message.Instruction(0), dashtest.Key(99)
	in.Accounts = slices.Clone(in.Accounts)
	in.Accounts[1].Key = transaction.PublicKey(key.ID())
	m, err := transaction.Compile(in.Accounts[1].Key, transaction.Hash{1}, in)
	if err != nil {
		t.Fatal(err)
	}
	record := archive.Record{Slot: e.Slot}
	if record.Transaction, err = m.Sign(key); err != nil {
		t.Fatal(err)
	}
	nonce := uint64(0)
	for i, b := range in.Data[1:9] {
		nonce |= uint64(b) << (8 * i)
	}
	e.Head = e.Next(before.Head, event.Cause{Actor: coordinator.ClientID(key.ID()), Nonce: nonce, Data: in.Data[9:]})
	record.Events = []event.Event{e}
	payload, err := record.AppendTo(nil)
	if err != nil {
		t.Fatal(err)
	}
	return payload
}

// TestForgedArchives changes an archive in the ways of somebody who wants to be believed, with a right chain of hashes
// over the entries of the file.
func TestForgedArchives(t *testing.T) {
	log, _ := archiveOf(t, options())
	all := entries(t, log)
	sound, _ := check(log, verify.Told{})
	told := verify.Told{Run: sound.Run, Records: sound.Records, Head: sound.Head, State: sound.State}
	at, _, _ := act(t, all)
	change := func(i int, payload []byte) []byte {
		changed := slices.Clone(all)
		changed[i] = payload
		return chained(changed)
	}
	flipped := func(i, byte int) []byte {
		payload := bytes.Clone(all[i])
		payload[byte] ^= 1
		return change(i, payload)
	}
	other, another := options(), options()
	other.RunID = "other"
	another.Members++
	otherRun, _ := archiveOf(t, other)
	otherGenesis, _ := archiveOf(t, another)
	hostileByte := bytes.Clone(log)
	hostileByte[len(log)/2] ^= 1
	for name, forged := range map[string][]byte{
		"an action is forged":             flipped(at, len(all[at])-1),
		"an event is forged":              flipped(at, 9+24),
		"a byte of the file":              hostileByte,
		"a member is another one":         change(at, asAnother(t, all)),
		"an entry is left out":            chained(slices.Delete(slices.Clone(all), at, at+1)),
		"two entries are exchanged":       chained(exchanged(all, at)),
		"the end is cut":                  chained(all[:len(all)-5]),
		"all but the header is cut":       chained(all[:1]),
		"another run":                     otherRun,
		"another genesis at this address": chained(entries(t, otherGenesis)[:len(all)]),
		"the genesis is another's":        flipped(3, len(all[3])-2),
		"another chain":                   flipped(0, len(all[0])-1),
		"the account is another one":      flipped(0, len(all[0])-40),
	} {
		t.Run(name, func(t *testing.T) {
			r, v := check(forged, told)
			if r.Verified {
				t.Fatalf("found %+v", r)
			}
			golden.Message(t, name, problem(r))
			_ = v.Show(0) // what did verify can be shown
		})
	}
}

// TestInventedArchive is of what an archive does not prove by itself: ticks are signed by nobody, so that whoever has a
// few keys can make up a run. Its head is another one than that of the account.
func TestInventedArchive(t *testing.T) {
	o := options()
	real, _ := archiveOf(t, o)
	o.Silent = 0 // other actions of the same members
	invented, _ := archiveOf(t, o)
	a, _ := check(real, verify.Told{})
	b, _ := check(invented, verify.Told{})
	if !a.Verified || !b.Verified || a.Run != b.Run || a.Chain.Account != b.Chain.Account || a.Chain.Head == b.Chain.Head {
		t.Errorf("found %+v and %+v", a.Chain, b.Chain)
	}
}
