package wandb

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/face/metrics"
	"github.com/psyche-go/psyche/face/tracker"
)

func row(step uint32) metrics.Row {
	return metrics.Row{Time: time.Unix(int64(step), 0), Step: step, Values: map[string]float64{"train/loss": float64(step) / 2, "bad": math.NaN()}}
}

// service is a server that speaks the protocol.
type service struct {
	t        *testing.T
	lines    []string
	complete bool
	begun    map[string]any
	fail     func(w http.ResponseWriter) bool // replaces the answers; may be nil
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.fail != nil && s.fail(w) {
		return
	}
	if user, key, ok := r.BasicAuth(); !ok || user != "api" || key != "secret" {
		http.Error(w, "who are you?", http.StatusUnauthorized)
		return
	}
	var body struct {
		Query     string
		Variables map[string]any
		Files     map[string]struct {
			Offset  int
			Content []string
		}
		Complete bool
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		s.t.Error(err)
	}
	switch r.URL.Path {
	case "/graphql":
		s.begun = body.Variables
		_, _ = fmt.Fprintf(w, `{"data":{"upsertBucket":{"bucket":{"name":%q,"project":{"name":"p q","entity":{"name":"me"}}}}}}`, body.Variables["name"])
	case fmt.Sprintf("/files/me/p q/%v/file_stream", s.begun["name"]):
		history := body.Files["wandb-history.jsonl"]
		if len(history.Content) > 0 && history.Offset != len(s.lines) {
			s.t.Errorf("lines from %d on, %d are there", history.Offset, len(s.lines))
		}
		s.lines, s.complete = append(s.lines, history.Content...), body.Complete
		_, _ = w.Write([]byte("{}"))
	default:
		s.t.Errorf("asked for %s", r.URL.Path)
	}
}

func begin(t *testing.T, s *service, key string) tracker.Sink {
	t.Helper()
	s.t = t
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	sink, err := Online(Service{URL: server.URL + "/", Key: key}, Run{Project: "p q", Group: "g", Name: "mine", Config: map[string]any{"x": 1}})
	if err != nil {
		t.Fatal(err)
	}
	return sink
}

func TestOnline(t *testing.T) {
	s := &service{}
	sink := begin(t, s, "secret")
	for step := uint32(1); step <= 5; step += 2 {
		if err := sink.Write(t.Context(), []metrics.Row{row(step), row(step + 1)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := sink.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(s.lines) != 6 || !s.complete || s.begun["groupName"] != "g" || s.begun["displayName"] != "mine" || s.begun["entity"] != nil || s.begun["config"] != `{"x":{"value":1}}` {
		t.Errorf("%d lines, complete %v, begun with %v", len(s.lines), s.complete, s.begun)
	}
	var fields map[string]any
	if err := json.Unmarshal([]byte(s.lines[3]), &fields); err != nil || fields["_step"] != 4.0 || fields["train/loss"] != 2.0 || fields["bad"] != nil {
		t.Errorf("got %v, %v; want nil error and fields[\"_step\"] == 4.0 and fields[\"train/loss\"] == 2.0 and fields[\"bad\"] == nil", fields, err)
	}
}

// TestServicesThatFail has a service that refuses, and a service that sends invalid answers.
func TestServicesThatFail(t *testing.T) {
	answer := func(status int, text string) func(http.ResponseWriter) bool {
		return func(w http.ResponseWriter) bool {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(text))
			return true
		}
	}
	for name, test := range map[string]struct {
		fail  func(http.ResponseWriter) bool
		key   string
		never bool // the sink gives up
	}{
		"wrong key":        {nil, "other", true},
		"no such thing":    {answer(404, ""), "secret", true},
		"refused by name":  {answer(200, `{"errors":[{"message":"no such entity"}]}`), "secret", true},
		"overload":         {answer(429, ""), "secret", false},
		"broken":           {answer(500, ""), "secret", false},
		"garbage":          {answer(200, "<html>"), "secret", false},
		"nothing":          {answer(200, "{}"), "secret", false},
		"a path elsewhere": {answer(200, `{"data":{"upsertBucket":{"bucket":{"name":"..","project":{"name":"p","entity":{"name":"e"}}}}}}`), "secret", false},
		"endless":          {answer(200, strings.Repeat("x", 2*maxResponse)), "secret", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := &service{fail: test.fail}
			sink := begin(t, s, test.key)
			err := sink.Write(t.Context(), []metrics.Row{row(1)})
			golden.Message(t, name, err)
			if errors.Is(err, tracker.ErrGivenUp) != test.never {
				t.Fatalf("got %v; want errors.Is(err, tracker.ErrGivenUp) == test.never", err)
			}
			if test.never {
				return
			}
			if s.fail = nil; sink.Write(t.Context(), []metrics.Row{row(1)}) != nil || len(s.lines) != 1 {
				t.Errorf("afterwards %d lines came", len(s.lines))
			}
		})
	}
	if _, err := Online(Service{URL: "ftp://h"}, Run{}); err == nil {
		t.Error("an address with a different protocol was accepted")
	}
}

// unframe decodes the records of a file.
func unframe(t *testing.T, text []byte) (records [][]byte) {
	t.Helper()
	if !bytes.HasPrefix(text, []byte(":W&B\xe1\xbe\x00")) {
		t.Fatalf("begins with %q", text[:7])
	}
	var whole []byte
	for at := 7; at < len(text); {
		if left := blockSize - at%blockSize; left < pieceHead {
			at += left
			continue
		}
		n, place := int(binary.LittleEndian.Uint16(text[at+4:])), text[at+6]
		piece := text[at+pieceHead : at+pieceHead+n]
		if binary.LittleEndian.Uint32(text[at:]) != crc32.ChecksumIEEE(append([]byte{place}, piece...)) {
			t.Fatalf("the checksum at %d is wrong", at)
		}
		if (at+pieceHead+n-1)/blockSize != at/blockSize {
			t.Fatalf("the piece at %d crosses a block", at)
		}
		if (place == pieceWhole || place == pieceFirst) != (whole == nil) {
			t.Fatalf("a piece of kind %d at %d", place, at)
		}
		whole = append(append([]byte{}, whole...), piece...)
		if place == pieceWhole || place == pieceLast {
			records, whole = append(records, whole), nil
		}
		at += pieceHead + n
	}
	return records
}

func TestOffline(t *testing.T) {
	sink, folder, err := Offline(t.TempDir(), Run{Group: "g", Name: "mine", Config: map[string]any{"x": "y"}})
	if err != nil {
		t.Fatal(err)
	}
	const rows = 3000 // several blocks
	for step := uint32(1); step <= rows; step++ {
		r := row(step)
		if step%500 == 0 { // larger than a block
			for i := range 2000 {
				r.Values[fmt.Sprintf("optim/model.layers.%d.grad_energy", i)] = 1
			}
		}
		if err := sink.Write(t.Context(), []metrics.Row{r}); err != nil {
			t.Fatal(err)
		}
	}
	if err := sink.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	id := folder[strings.LastIndex(folder, "-")+1:]
	text, err := os.ReadFile(filepath.Join(folder, "run-"+id+".wandb"))
	if err != nil {
		t.Fatal(err)
	}
	records := unframe(t, text)
	if len(records) != rows+3 {
		t.Fatalf("%d records", len(records))
	}
	for i, record := range records {
		_, _, n := protowire.ConsumeTag(record)
		number, m := protowire.ConsumeVarint(record[n:])
		kind, _, _ := protowire.ConsumeTag(record[n+m:])
		want := protowire.Number(recordHistory)
		switch i {
		case 0:
			want = recordHeader
		case 1:
			want = recordRun
			for _, text := range []string{id, "psyche", "mine", "g", `"y"`} {
				if !bytes.Contains(record, []byte(text)) {
					t.Errorf("the run has no %s", text)
				}
			}
		case len(records) - 1:
			want = recordExit
		}
		if number != uint64(i+1) || kind != want {
			t.Fatalf("record %d has number %d and kind %d, want %d", i, number, kind, want)
		}
	}
	if history := records[2]; !bytes.Contains(history, []byte("train/loss")) || !bytes.Contains(history, []byte("NaN")) {
		t.Errorf("history %q", history)
	}
}
