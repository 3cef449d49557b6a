package verify_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/chain/archive"
	"github.com/psyche-go/psyche/face/dash/dashtest"
	"github.com/psyche-go/psyche/face/dash/verify"
	"github.com/psyche-go/psyche/record/follow"
	"github.com/psyche-go/psyche/record/journal"
	"github.com/psyche-go/psyche/record/wire"
)

var (
	rounds  = flag.Int("verify.rounds", 30, "rounds of the run whose log is verified")
	members = flag.Int("verify.members", 6, "members of that run")
)

func logOf(t testing.TB, o dashtest.Options) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log")
	if err := dashtest.Write(path, o); err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return log
}

func options() dashtest.Options {
	return dashtest.Options{RunID: "tiny", Name: "Ada", Members: *members, Rounds: *rounds, RoundsPerEpoch: 10, Silent: 4, Boast: 2}
}

// check verifies a log in pieces.
func check(log []byte, told verify.Told) (verify.Report, *verify.Verifier) {
	v := verify.New()
	for len(log) > 0 {
		n := min(len(log), 1000)
		if _, err := v.Write(log[:n]); err != nil {
			break
		}
		log = log[n:]
	}
	return v.Close(told), v
}

// entries are the payloads of a log.
func entries(t testing.TB, log []byte) (all [][]byte) {
	t.Helper()
	_, err := journal.Read(bytes.NewReader(log), func(payload []byte) error {
		all = append(all, bytes.Clone(payload))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// chained is a log of entries, whose chain of hashes is right whatever they are.
func chained(all [][]byte) []byte {
	log, previous := []byte(journal.Magic), [sha256.Size]byte{}
	for _, payload := range all {
		log, previous = journal.AppendEntry(log, previous, payload)
	}
	return log
}

// TestSoundLog verifies a whole log, and describes the run.
func TestSoundLog(t *testing.T) {
	log := logOf(t, options())
	began := time.Now()
	r, v := check(log, verify.Told{})
	if !r.Verified || r.Records != len(entries(t, log)) || r.Bytes != int64(len(log)) || r.Torn != 0 || r.Host != dashtest.Key(-1).ID().String() {
		t.Errorf("found %+v", r)
	}
	t.Logf("%d rounds of %d members: %d records, %d signatures, %d KiB in %s", *rounds, *members, r.Records, r.Signatures, r.Bytes>>10, time.Since(began).Round(time.Millisecond))
	shown := v.Show(0)
	if shown.Status.State != "Finished" || shown.Status.StateHash != r.State || len(shown.History.Members) != *members || shown.History.Tokens == 0 {
		t.Errorf("it shows %+v", shown.Status)
	}
	if names := shown.Status.Names; len(names) != 1 || names[dashtest.Key(0).ID().String()] != "Ada" {
		t.Errorf("it names %q", names)
	}
	if events, more := v.Events(3); len(events) != 3 || more != 0 {
		t.Errorf("%d events, %d more", len(events), more)
	}
	told := verify.Told{Run: r.Run, Records: r.Records, Head: r.Head, State: r.State}
	if again, _ := check(log, told); !again.Verified {
		t.Errorf("with the reported facts: %+v", again)
	}
	if torn, _ := check(log[:len(log)-3], verify.Told{}); !torn.Verified || torn.Torn == 0 || torn.Records != r.Records-1 {
		t.Errorf("for a torn log: %+v", torn)
	}
}

// TestGrowingLog writes a log in pieces and checks the report after each piece.
func TestGrowingLog(t *testing.T) {
	log := logOf(t, dashtest.Options{RunID: "tiny", Members: 3, Rounds: 6, RoundsPerEpoch: 3})
	all := entries(t, log)
	whole, _ := check(log, verify.Told{})
	v := verify.New()
	defer v.Close(verify.Told{})
	size, previous := int64(len(journal.Magic)), [sha256.Size]byte{}
	if _, err := v.Write([]byte(journal.Magic)); err != nil {
		t.Fatal(err)
	}
	if r := v.Report(verify.Told{}); r.Verified || r.Broken || r.Records != 0 {
		t.Errorf("the report without an entry: %+v", r)
	}
	for i, payload := range all {
		var entry []byte
		entry, previous = journal.AppendEntry(nil, previous, payload)
		cut := len(entry) * i / len(all)
		for _, part := range [][]byte{entry[:cut], entry[cut:]} {
			if _, err := v.Write(part); err != nil {
				t.Fatal(err)
			}
			if r := v.Report(verify.Told{}); i > 0 && len(part) == cut && (!r.Verified || r.Records != i || r.Torn != int64(cut) || r.Bytes != size) {
				t.Fatalf("the report within entry %d: %+v", i, r)
			}
		}
		size += int64(len(entry))
		r := v.Report(verify.Told{Records: i + 1, Head: hex.EncodeToString(previous[:])})
		if !r.Verified || r.Records != i+1 || r.Bytes != size || r.Torn != 0 || v.Show(0).Status.StateHash != r.State {
			t.Fatalf("the report after entry %d: %+v", i, r)
		}
	}
	if r := v.Report(verify.Told{}); !cmp.Equal(r, whole) {
		t.Errorf("the report is %+v, of the whole log at once %+v", r, whole)
	}
	for _, again := range []bool{false, true} {
		if _, err := v.Write(log); err == nil {
			t.Errorf("Write takes a log that does not verify, again: %v", again)
		}
		if r := v.Report(verify.Told{}); r.Verified || !r.Broken || r.Records != whole.Records {
			t.Errorf("the report of a log with a wrong continuation: %+v", r)
		}
	}
}

// TestForgedLogs changes a log in the ways of somebody who wants to be believed, with a right chain of hashes.
func TestForgedLogs(t *testing.T) {
	log := logOf(t, options())
	all := entries(t, log)
	sound, _ := check(log, verify.Told{})
	told := verify.Told{Run: sound.Run, Records: sound.Records, Head: sound.Head, State: sound.State}
	action := -1 // a witness's proof
	for i, payload := range all {
		if follow.Kind(payload[0]) == follow.KindAction && i > len(all)/2 {
			action = i
			break
		}
	}
	change := func(i int, payload []byte) []byte {
		changed := append([][]byte(nil), all...)
		changed[i] = payload
		return chained(changed)
	}
	flipped := bytes.Clone(all[action])
	flipped[len(flipped)-1] ^= 1
	opened, err := wire.OpenAction(all[action][1:], [32]byte(must(hex.DecodeString(sound.Run))))
	if err != nil {
		t.Fatal(err)
	}
	joined := slices.IndexFunc(all, func(payload []byte) bool { return bytes.HasSuffix(payload, []byte("Ada")) })
	renamed := append(bytes.Clone(all[joined][:len(all[joined])-3]), "Eve"...)
	swapped := append([]byte{byte(follow.KindAction)}, wire.SignAction(dashtest.Key(99), [32]byte(must(hex.DecodeString(sound.Run))), opened.Nonce, opened.Action)...)
	other := options()
	other.Members++
	hostileByte := bytes.Clone(log)
	hostileByte[len(log)/2] ^= 1
	for name, forged := range map[string]struct {
		log  []byte
		told verify.Told
	}{
		"an entry is forged":               {change(action, flipped), told},
		"a member has another name":        {change(joined, renamed), told},
		"a byte of the file":               {hostileByte, told},
		"a member is another one":          {change(action, swapped), told},
		"an entry is left out":             {chained(append(append([][]byte(nil), all[:action]...), all[action+1:]...)), told},
		"two entries are exchanged":        {chained(exchanged(all, action)), told},
		"the end is cut":                   {chained(all[:len(all)-5]), told},
		"all is cut":                       {nil, told},
		"the genesis is another one":       {logOf(t, other), told},
		"the page shows another state":     {log, verify.Told{Records: told.Records, State: strings.Repeat("00", 32)}},
		"another log of as many entries":   {log, verify.Told{Records: told.Records, Head: strings.Repeat("00", 32)}},
		"a time of the host goes back":     {change(action-1, follow.Record{Kind: follow.KindTick, Now: 1}.AppendTo(nil)), told},
		"something that is not a log":      {[]byte(strings.Repeat("<html>", 1000)), told},
		"a log of another format":          {[]byte("psychelog/3\n" + string(log[12:])), told},
		"a genesis that nobody has signed": {change(0, append(bytes.Clone(all[0][:len(all[0])-1]), all[0][len(all[0])-1]^1)), told},
	} {
		t.Run(name, func(t *testing.T) {
			r, v := check(forged.log, forged.told)
			if r.Verified {
				t.Fatalf("found %+v", r)
			}
			golden.Message(t, name, problem(r))
			_ = v.Show(0) // what did verify can be shown
		})
	}
}

// formats matches what changes with the encoding of a log: keys, hashes, signatures, offsets and the format's number.
var formats = regexp.MustCompile(`[0-9A-Za-z]{43,}|(offset|writes) \d+`)

// problem returns the problem of a report as an error, without the text that formats matches.
func problem(r verify.Report) error {
	return errors.New(formats.ReplaceAllString(r.Problem, "$1…"))
}

func exchanged(all [][]byte, i int) [][]byte {
	changed := append([][]byte(nil), all...)
	changed[i], changed[i+1] = changed[i+1], changed[i]
	return changed
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

// TestInBrowser runs the verifier that make verifier built as browsers do, under Node.
func TestInBrowser(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("there is no node here: the verifier was not tried as WebAssembly")
	}
	lib := filepath.Join("..", "..", "..", "build", "lib")
	if _, err := os.Stat(filepath.Join(lib, "verifier.wasm.gz")); err != nil {
		t.Skip("the verifier was not built (make verifier): it was not tried as WebAssembly")
	}
	for name, log := range map[string][]byte{"of a server": logOf(t, options()), "of a chain": first(archiveOf(t, options()))} {
		t.Run(name, func(t *testing.T) { inNode(t, node, lib, log) })
	}
}

func first(log []byte, _ archive.Header) []byte { return log }

// inNode has Node verify a log, and wants it to find and show what it is natively.
func inNode(t *testing.T, node, lib string, log []byte) {
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, log, 0o600); err != nil {
		t.Fatal(err)
	}
	want, native := check(log, verify.Told{})
	output, err := exec.CommandContext(t.Context(), node, "testdata/node.js", lib, path).Output()
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	var got struct {
		Report  verify.Report   `json:"report"`
		Shown   json.RawMessage `json:"shown"`
		Seconds float64         `json:"seconds"`
		Memory  int             `json:"memory"`
	}
	if err := json.Unmarshal(output, &got); err != nil {
		t.Fatalf("%v: %.200s", err, output)
	}
	if !cmp.Equal(got.Report, want) {
		t.Errorf("as WebAssembly it found %+v, natively %+v", got.Report, want)
	}
	shown, err := json.Marshal(native.Show(0))
	if err != nil || !bytes.Equal(shown, got.Shown) {
		t.Errorf("as WebAssembly it shows something else: %v", err)
	}
	t.Logf("%d records, %d signatures in %.2f s, %d MiB (%s)", want.Records, want.Signatures, got.Seconds, got.Memory>>20, runtime.GOARCH)
}

// FuzzVerifier takes any bytes as a log.
func FuzzVerifier(f *testing.F) {
	log := logOf(f, dashtest.Options{RunID: "tiny", Members: 2, Rounds: 2, RoundsPerEpoch: 2})
	f.Add(log, uint32(0))
	f.Add(log[:len(log)-7], uint32(1))
	f.Add(first(archiveOf(f, dashtest.Options{RunID: "tiny", Members: 2, Rounds: 2, RoundsPerEpoch: 2})), uint32(0))
	f.Add([]byte("psychelog/12\n"), uint32(100))
	f.Add([]byte{}, uint32(0))
	fuzztest.Run(f, func(t *testing.T, log []byte, last uint32) {
		r, v := check(log, verify.Told{})
		if r.Verified == (r.Problem != "") {
			t.Errorf("%+v", r)
		}
		if _, err := json.Marshal(v.Show(last)); err != nil {
			t.Error(err)
		}
	})
}
