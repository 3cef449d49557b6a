package main

import (
	"math"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/psyche-go/psyche/record/config"
	"github.com/psyche-go/psyche/record/event"
)

func TestRoundsBetweenTwoOthers(t *testing.T) {
	at := time.Unix(1_800_000_000, 0)
	var states []event.Event
	add := func(after time.Duration, runState string, epoch, step uint32) {
		at = at.Add(after)
		states = append(states, event.Event{Time: at, Body: event.State{RunState: runState, Epoch: epoch, Step: step}})
	}
	add(0, "Warmup", 0, 1)
	add(1*time.Second, "RoundTrain", 0, 1)
	add(2*time.Second, "RoundTrain", 0, 2)
	add(1*time.Second, "RoundTrain", 0, 2) // a witness came
	add(1*time.Second, "RoundWitness", 0, 2)
	add(1*time.Second, "RoundTrain", 0, 3)
	add(4*time.Second, "Cooldown", 0, 3)
	add(9*time.Second, "RoundTrain", 1, 4)
	add(1*time.Second, "RoundTrain", 1, 5)
	add(5*time.Second, "RoundTrain", 1, 6)
	if got := roundsOf(states); !slices.Equal(got, []float64{3, 5}) {
		t.Errorf("got %v", got)
	}
}

func TestCompare(t *testing.T) {
	block := func(first, second float64) []measured {
		return []measured{{row: "without", rounds: []float64{first, first, 99}}, {row: "with", rounds: []float64{second}}}
	}
	all := compare([][]measured{block(1, 1.02), block(2, 2.08), block(1, 1.1)})
	if with := all[1]; math.Abs(percent(median(with.ratios))-4) > 1e-9 || all[0].ratios[2] != 1 {
		t.Errorf("got %+v", all)
	}
	var text strings.Builder
	if err := print(&text, all); err != nil || !strings.Contains(text.String(), "+4.00 %") || !strings.Contains(text.String(), "1020 2080 1100") {
		t.Errorf("%v\n%s", err, text.String())
	}
	for _, digests := range [][]string{nil, {"a", "b"}, {"", ""}} {
		if (measured{digests: digests}).same() == nil {
			t.Errorf("%v passed for one model", digests)
		}
	}
	if err := (measured{digests: []string{"a", "a"}}).same(); err != nil {
		t.Error(err)
	}
}

func TestSettingsLoad(t *testing.T) {
	text, err := os.ReadFile("../../../configs/quickstart/state.toml")
	if err != nil {
		t.Fatal(err)
	}
	for of := range tables {
		changed, err := options{of: of, clients: 5, rounds: 8, batch: 20}.settings(text)
		if err != nil {
			t.Fatal(err)
		}
		run, err := config.ParseState("state.toml", changed)
		if err != nil || run.Config.InitMinClients != 5 || run.Config.TotalSteps != 10 || (run.Model.Checkpoint.Dummy != nil) != (of == "failures") {
			t.Errorf("%s: %+v, %v", of, run.Config, err)
		}
	}
}

func TestStandins(t *testing.T) {
	client := http.Client{Timeout: 200 * time.Millisecond}
	for how, want := range map[manner]int{answers: 200, garbage: 200, hangs: 0, refuses: 0} {
		s := newStandin(how)
		status := 0
		if response, err := client.Post(s.URL+"/graphql", "application/json", nil); err == nil {
			status = response.StatusCode
			_ = response.Body.Close()
		}
		if status != want {
			t.Errorf("%s: status %d, want %d", how, status, want)
		}
		s.end()
	}
}
