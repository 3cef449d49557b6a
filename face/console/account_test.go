package console

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/record/event"
)

// TestAccount checks the summary of its contribution that a process prints when it ends.
func TestAccount(t *testing.T) {
	id := identity.ID{5}
	summary := func(onTCP bool, bodies ...event.Body) string {
		a := NewAccount("tiny", id, onTCP)
		for i, body := range bodies {
			a.See(event.Event{Time: time.Unix(int64(i), 0), Body: body})
		}
		var out strings.Builder
		a.Print(&out)
		return out.String()
	}
	round := func(step uint32, own bool, lost ...event.LostBatch) []event.Body {
		return []event.Body{
			event.State{RunState: "RoundTrain", Step: step, BatchSize: 8},
			event.Trained{Step: step, Batch: event.Batch{8, 10}, Tokens: 200},
			event.Applied{Step: step, OwnCounted: own, Lost: lost},
		}
	}
	all := []event.Body{event.Ready{}}
	all = append(all, round(1, true)...)
	all = append(all, round(2, false, event.LostBatch{Batch: event.Batch{8, 10}})...)
	all = append(all, event.Wire{P2PSent: 3 << 20, P2PReceived: 2048}, event.Audit{}, event.Voted{})
	unsaved := summary(false, all...)
	for _, want := range []string{
		"Run tiny, left before the end, as " + id.String() + ", 9s", "2 trained, 1 counted", "200 counted, 14.3 % of the 1400 of all members",
		"3.0 MiB sent, 2.0 KiB received", "1, and 1 votes", "1 rounds are not yet in a model that this process has seen",
	} {
		if !strings.Contains(unsaved, want) {
			t.Errorf("no %q in\n%s", want, unsaved)
		}
	}
	if strings.Contains(unsaved, "receipt") {
		t.Errorf("a run on a chain has no receipts:\n%s", unsaved)
	}
	saved := summary(true, append(all, event.Checkpoint{Step: 2, Digest: strings.Repeat("ab", 32), Dir: "here"}, event.Finished{})...)
	for _, want := range []string{"Run tiny, finished", "1 rounds in the model of step 2, digest abababababababab, in here", "psyche run receipt LOG --member " + id.String()} {
		if !strings.Contains(saved, want) {
			t.Errorf("no %q in\n%s", want, saved)
		}
	}
	lost := summary(true, append(append(all, event.Ready{}), event.Checkpoint{Step: 9, Digest: "ab"})...)
	if !strings.Contains(lost, "0 rounds in the model of step 9") {
		t.Errorf("rounds that were in no model at the start of the next epoch are counted:\n%s", lost)
	}
	if nothing := summary(true, event.Ready{}, event.Finished{}); nothing != "" {
		t.Errorf("a client that did not train got a summary:\n%s", nothing)
	}
}

// TestAccountForPrograms checks the record of the contribution in a JSON log.
func TestAccountForPrograms(t *testing.T) {
	var log bytes.Buffer
	logger := slog.New(slog.NewJSONHandler(&log, nil))
	a := NewAccount("tiny", identity.ID{5}, true)
	if a.Log(logger); log.Len() > 0 {
		t.Errorf("a client that did not train has the record %s", &log)
	}
	for i, body := range []event.Body{
		event.Ready{}, event.State{RunState: "RoundTrain", Step: 1, BatchSize: 8}, event.Trained{Step: 1, Batch: event.Batch{8, 10}, Tokens: 200},
		event.Applied{Step: 1, OwnCounted: true}, event.Wire{P2PSent: 30}, event.Checkpoint{Step: 1, Digest: "abcd", Dir: "here"}, event.Finished{},
	} {
		a.See(event.Event{Time: time.Unix(int64(i), 0), Body: body})
	}
	a.Log(logger)
	var got map[string]any
	if err := json.Unmarshal(log.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]any{
		"msg": "contribution", "run": "tiny", "finished": true, "seconds": 6.0, "rounds_counted": 1.0, "tokens_counted": 200.0,
		"bytes_sent_to_peers": 30.0, "rounds_in_model": 1.0, "model_digest": "abcd",
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
}

// TestAccountOfNewcomer checks that the closing message of a newcomer explains the rounds that did not
// count, and that a client that came after the end learns how to use the model.
func TestAccountOfNewcomer(t *testing.T) {
	summary := func(bodies ...event.Body) string {
		a := NewAccount("tiny", identity.ID{5}, true)
		a.Link = "'psyche://x'"
		for _, body := range bodies {
			a.See(event.Event{Time: time.Unix(1, 0), Body: body})
		}
		var out strings.Builder
		a.Print(&out)
		return out.String()
	}
	got := summary(
		event.Trained{Step: 1}, event.Applied{Step: 1, OwnAttested: true}, event.Trained{Step: 2}, event.Applied{Step: 2, OwnCounted: true},
		event.Checkpoint{Step: 2, Digest: "ab", Dir: "here"}, event.Finished{Digest: "ab"},
	)
	for _, want := range []string{"2 trained, 1 counted, 1 checked but not counted yet\n", "psyche-client generate --model 'here' --prompt"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if got := summary(event.Finished{}); !strings.Contains(got, "Run tiny is over.") || !strings.Contains(got, "psyche-client serve-model 'psyche://x'\n") {
		t.Error(got)
	}
}
