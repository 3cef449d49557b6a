package layout

import (
	"bytes"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/backend"
)

// testAccount returns an account with a value in every field.
func testAccount(t testing.TB) Account {
	t.Helper()
	s := testState(t)
	x := Account{State: s, Stage: []byte("staged")}
	x.Summary = Summary{
		Main: s.Authority.Main, RunID: s.RunID, RunState: s.RunState, Closed: s.Closed, Slot: 1<<40 + 1, Armed: 1<<40 + 2, Sequence: 1<<33 + 3,
		StateStart: s.StateStart, MinimumSince: s.MinimumSince, Progress: s.Progress,
	}
	for i := range x.Head {
		x.Head[i] = byte(i) + 1
	}
	return x
}

func testPeer() Peer {
	p := Peer{Slot: 1<<40 + 1, Addrs: []string{"/ip4/127.0.0.1/udp/1/quic-v1", "~"}}
	for i := range p.Run {
		p.Run[i], p.Owner[i] = byte(i)+1, byte(i)+0x41
	}
	return p
}

// TestGoldenAccounts checks that the bytes of accounts do not change, because accounts on the chain
// have this layout.
func TestGoldenAccounts(t *testing.T) {
	x, p := testAccount(t), testPeer()
	golden.Compare(t, "run.txt", dump(AppendAccount(nil, &x)))
	golden.Compare(t, "peer.txt", dump(appendPeer(nil, &p)))
}

func TestReadAccountReadsWhatAppendAccountWrites(t *testing.T) {
	x := testAccount(t)
	b := AppendAccount([]byte("before"), &x)[len("before"):]
	if len(b) != AccountSize {
		t.Fatalf("%d bytes, want %d", len(b), AccountSize)
	}
	read, err := ReadAccount(b)
	if err != nil {
		t.Fatal(err)
	}
	if read.Summary != x.Summary || !bytes.Equal(read.Stage, x.Stage) || !bytes.Equal(read.State.AppendTo(nil), x.State.AppendTo(nil)) {
		t.Errorf("read %+v, wrote %+v", read.Summary, x.Summary)
	}
	if join := x.State.Authority.Join; !bytes.Equal(b[JoinAuthorityOffset:][:len(join)], join[:]) || b[RunStateOffset] != byte(x.State.RunState) {
		t.Errorf("the join authority is at %d, not at %d, or the state %d not at %d", bytes.Index(b, join[:]), JoinAuthorityOffset, x.State.RunState, RunStateOffset)
	}
	summary, err := ReadSummary(b[:HeadSize])
	if err != nil || summary != x.Summary {
		t.Errorf("summary %+v %v, want %+v", summary, err, x.Summary)
	}
	fresh := Account{Summary: Summary{Main: x.Main}}
	if read, err = ReadAccount(AppendAccount(nil, &fresh)); err != nil || read.Summary != fresh.Summary || read.State.RunID != "" {
		t.Errorf("an account without genesis reads as %+v %v", read.Summary, err)
	}
}

// TestDocumentedAccount checks that the parts of an account in docs/solana.md follow each other
// without gaps.
func TestDocumentedAccount(t *testing.T) {
	text, err := os.ReadFile("../../docs/solana.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "| part | bytes | from |")
	table, _, _ = strings.Cut(table, "\n\n")
	end := 0
	for _, row := range regexp.MustCompile(`\| ([0-9]+) \| ([0-9]+) \|`).FindAllStringSubmatch(strings.ReplaceAll(table, ",", ""), -1) {
		size, _ := strconv.Atoi(row[1])
		if from, _ := strconv.Atoi(row[2]); from != end {
			t.Errorf("a part begins at %d, but the previous one ends at %d", from, end)
		}
		end += size
	}
	if end != AccountSize {
		t.Errorf("the parts end at %d, but an account at %d", end, AccountSize)
	}
}

func TestReadAccountRefuses(t *testing.T) {
	x := testAccount(t)
	good := AppendAccount(nil, &x)
	for name, change := range map[string]func([]byte) []byte{
		"nothing":           func([]byte) []byte { return nil },
		"a byte less":       func(b []byte) []byte { return b[:AccountSize-1] },
		"a byte more":       func(b []byte) []byte { return append(b, 0) },
		"zeros":             func(b []byte) []byte { clear(b); return b },
		"a peer":            func(b []byte) []byte { copy(b, PeerMagic); return b },
		"freed":             func(b []byte) []byte { copy(b, FreedMagic); return b },
		"a newer version":   func(b []byte) []byte { b[8]++; return b },
		"an unknown state":  func(b []byte) []byte { b[12] = 8; return b },
		"another state":     func(b []byte) []byte { b[12] = byte(coordinator.Paused); return b },
		"half closed":       func(b []byte) []byte { b[13] = 2; return b },
		"closed":            func(b []byte) []byte { b[13] = 1; return b },
		"too much staged":   func(b []byte) []byte { b[97] = 0xff; return b },
		"a long run id":     func(b []byte) []byte { b[StateOffset+17] = 33; return b },
		"no state":          func(b []byte) []byte { clear(b[StateOffset:stageAt]); return b },
		"a broken progress": func(b []byte) []byte { b[StateOffset+152+3] = 0xff; return b },
	} {
		if _, err := ReadAccount(change(slices.Clone(good))); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	if _, err := ReadSummary(good[:HeadSize-1]); err == nil {
		t.Error("a short summary is accepted")
	}
}

func TestPeers(t *testing.T) {
	long := strings.Repeat("a", backend.MaxAddrLength)
	for _, addrs := range [][]string{nil, {"a"}, {long, long, long, long}, {"1", "2", "3", "4", "5", "6", "7", "!~"}} {
		p := testPeer()
		p.Addrs = addrs
		b := appendPeer([]byte("before"), &p)[len("before"):]
		read, err := ReadPeer(b)
		if err != nil || len(b) != PeerSize || read.Run != p.Run || read.Owner != p.Owner || read.Slot != p.Slot || !slices.Equal(read.Addrs, addrs) {
			t.Errorf("%d addresses: read %+v %v", len(addrs), read, err)
		}
		if err := backend.CheckAddrs(addrs); err != nil {
			t.Error(err)
		}
	}
	good := testPeer()
	for name, change := range map[string]func([]byte) []byte{
		"a byte less":         func(b []byte) []byte { return b[:PeerSize-1] },
		"a byte more":         func(b []byte) []byte { return append(b, 0) },
		"zeros":               func(b []byte) []byte { clear(b); return b },
		"a run":               func(b []byte) []byte { copy(b, RunMagic); return b },
		"freed":               func(b []byte) []byte { copy(b, FreedMagic); return b },
		"a newer version":     func(b []byte) []byte { b[8]++; return b },
		"too many bytes":      func(b []byte) []byte { b[14] = 1; return b },
		"a byte too many":     func(b []byte) []byte { b[12]++; return b },
		"a byte too few":      func(b []byte) []byte { b[12]--; return b },
		"bytes after the end": func(b []byte) []byte { b[PeerSize-1] = 1; return b },
		"nine addresses":      func(b []byte) []byte { b[peerAddrs] = 9; return b },
		"three addresses":     func(b []byte) []byte { b[peerAddrs] = 3; return b },
		"an empty address":    func(b []byte) []byte { b[peerAddrs+1] = 0; return b },
		"a blank":             func(b []byte) []byte { b[peerAddrs+3] = ' '; return b },
	} {
		if _, err := ReadPeer(change(appendPeer(nil, &good))); err == nil {
			t.Errorf("a peer with %s is accepted", name)
		}
	}
}

// TestStageHasRoom checks that the longest genesis fits the staging area.
func TestStageHasRoom(t *testing.T) {
	g := coordinator.Genesis{
		RunID: strings.Repeat("x", coordinator.MaxRunIDLength), Config: testState(t).Config,
		Model: coordinator.Model{MaxSeqLen: 16, Definition: make([]byte, coordinator.MaxDefinitionSize), Checkpoint: coordinator.Checkpoint{
			Kind: coordinator.CheckpointGcs, Repo: strings.Repeat("r", coordinator.MaxRepoLength),
		}},
		Permissioned: true,
	}
	b := AppendGenesis(nil, g)
	if len(b) > StageSize {
		t.Errorf("a genesis has %d bytes, at most %d can be staged", len(b), StageSize)
	}
	read, err := ReadGenesis(b)
	if err != nil || !bytes.Equal(AppendGenesis(nil, read), b) || !read.Permissioned || read.Paused {
		t.Errorf("read %+v %v", read, err)
	}
	for n := range b {
		if _, err := ReadGenesis(b[:n]); err == nil {
			t.Fatalf("a genesis with %d of %d bytes is accepted", n, len(b))
		}
	}
	b[96] = 4
	if _, err := ReadGenesis(b); err == nil {
		t.Error("unknown flags are accepted")
	}
	if _, err := ReadGenesis(make([]byte, StageSize+1)); err == nil {
		t.Error("more bytes than can be staged are accepted")
	}
}

// FuzzReadAccount checks that an accepted account has a valid state, and that its summary agrees
// with it.
func FuzzReadAccount(f *testing.F) {
	x := testAccount(f)
	base := AppendAccount(nil, &x)
	f.Add(uint32(0), []byte(FreedMagic))
	f.Add(uint32(12), []byte{0, 0})
	f.Add(uint32(96), []byte{0xff, 0x22})
	f.Add(uint32(StateOffset+17), []byte{32})
	fuzztest.Run(f, func(t *testing.T, at uint32, changed []byte) {
		account := slices.Clone(base)
		copy(account[at%AccountSize:], changed)
		read, err := ReadAccount(account)
		summary, errOfSummary := ReadSummary(account[:HeadSize])
		if err != nil {
			return
		}
		if errOfSummary != nil || summary != read.Summary {
			t.Errorf("account %+v, summary %+v %v", read.Summary, summary, errOfSummary)
		}
		if read.RunState == coordinator.Uninitialized {
			return
		}
		s := &read.State
		if err := s.Check(); err != nil {
			t.Error(err)
		}
		if s.RunID != summary.RunID || s.Progress != summary.Progress || s.StateStart != summary.StateStart {
			t.Errorf("summary %+v of %s", summary, s.String())
		}
	})
}

// FuzzReadPeer checks that an accepted account has only one encoding.
func FuzzReadPeer(f *testing.F) {
	p := testPeer()
	base := appendPeer(nil, &p)
	f.Add(base)
	f.Add(append(bytes.Clone(base[:peerAddrs]), make([]byte, PeerSize-peerAddrs)...))
	fuzztest.Run(f, func(t *testing.T, b []byte) {
		read, err := ReadPeer(b)
		if err != nil {
			return
		}
		if err := backend.CheckAddrs(read.Addrs); err != nil {
			t.Error(err)
		}
		if again := appendPeer(nil, &read); !bytes.Equal(again, b) {
			t.Errorf("%x was decoded, but is encoded as %x", b, again)
		}
	})
}

// FuzzReadGenesis checks that an accepted genesis has only one encoding.
func FuzzReadGenesis(f *testing.F) {
	s := testState(f)
	f.Add(AppendGenesis(nil, coordinator.Genesis{RunID: "seed", Config: s.Config, Model: s.Model, Paused: true}))
	fuzztest.Run(f, func(t *testing.T, b []byte) {
		read, err := ReadGenesis(b)
		if err != nil {
			return
		}
		if again := AppendGenesis(nil, read); !bytes.Equal(again, b) {
			t.Errorf("%x was decoded, but is encoded as %x", b, again)
		}
	})
}

// appendPeer appends the account of a peer to b. Its addresses must be within the limits.
func appendPeer(b []byte, p *Peer) []byte {
	n := len(b)
	addrs := AppendAddrs(nil, p.Addrs)
	b = slices.Grow(b, PeerSize)[:n+PeerSize]
	a := b[n:]
	clear(a)
	copy(a, PeerMagic)
	le.PutUint32(a[8:], accountVersion)
	le.PutUint32(a[12:], uint32(len(addrs)))
	copy(a[16:], p.Run[:])
	copy(a[48:], p.Owner[:])
	le.PutUint64(a[80:], p.Slot)
	copy(a[peerAddrs:], addrs)
	return b
}
