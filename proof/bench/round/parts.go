package main

import (
	"slices"
	"time"

	"github.com/psyche-go/psyche/record/event"
)

// Parts of a round. Those of computing come from spans, the others from what the client was
// waiting for.
const (
	partSettle   = "settle"         // waiting for the results that are applied now, deciding what counts
	partDecode   = event.SpanDecode // reading results
	partApply    = "apply"          // moving the weights; with decoding where that is not told apart
	partTokens   = "tokens"         // reading tokens, and all else before training
	partTrain    = "train"          // forward, backward; with encoding where that is not told apart
	partEncode   = event.SpanEncode // compressing the own result
	partAnnounce = "announce"       // the own result to gossip
	partSlowest  = "slowest"        // until the last client has announced its result
	partGossip   = "gossip"         // until the last announcement has come here
	partFetch    = "fetch"          // until its result is here and verified
	partWitness  = "witness"        // until the host has acknowledged the own report, or goes on before
	partQuorum   = "quorum"         // until the host publishes RoundWitness
	partLate     = "late"           // until the host publishes the next round
	partPush     = "push"           // until that is here
	partCommit   = event.SpanCommit // of the host: syncing its journal; lies within the others
)

// parts lists the parts of a round in their order.
var parts = []string{
	partSettle, partDecode, partApply, partTokens, partTrain, partEncode, partAnnounce,
	partSlowest, partGossip, partFetch, partWitness, partQuorum, partLate, partPush,
}

// computing lists the parts that are computing; where two spans overlap, the earlier here
// names the time: encoding is a part of what a client reports as training.
var computing = []string{partEncode, partDecode, partTrain, partApply}

// dissection is a round of one client: its parts add up to total.
type dissection struct {
	total time.Duration
	parts map[string]time.Duration
}

// stage is a wait that ends at a time. A wait of which nobody wrote the end is left out, and
// its time is part of the next one.
type stage struct {
	part string
	end  time.Time
}

// dissect gives every moment of a round a name. slowest is when the last client announced
// its result.
func dissect(step uint32, r *clientRound, c *clientRecord, h *hostRecord, slowest time.Time) dissection {
	var spans []span
	for _, s := range c.spans {
		if s.to.After(r.start) && s.from.Before(r.end) && slices.Contains(computing, s.part) {
			spans = append(spans, s)
		}
	}
	stages := stagesOf(step, r, spans, h, slowest)
	cuts := []time.Time{r.start, r.end}
	for _, s := range stages {
		cuts = append(cuts, s.end)
	}
	for _, s := range append(spans, r.fetched) {
		cuts = append(cuts, s.from, s.to)
	}
	cuts = slices.DeleteFunc(cuts, func(t time.Time) bool { return t.Before(r.start) || t.After(r.end) })
	slices.SortFunc(cuts, time.Time.Compare)
	d := dissection{total: r.end.Sub(r.start), parts: map[string]time.Duration{}}
	for i, from := range cuts[:len(cuts)-1] {
		d.parts[nameOf(from, spans, stages, r.fetched)] += cuts[i+1].Sub(from)
	}
	return d
}

// stagesOf returns the waits of a round in their order, the end of each not before that of
// the one before.
func stagesOf(step uint32, r *clientRound, spans []span, h *hostRecord, slowest time.Time) []stage {
	applying := r.trained.from
	for _, s := range spans {
		if s.part == partApply && (applying.IsZero() || s.from.Before(applying)) {
			applying = s.from
		}
	}
	witnessed, over := r.witnessSent, h.witness[step]
	if !over.IsZero() && over.Before(witnessed) { // nobody waits for the acknowledgement then
		witnessed = over
	}
	all := []stage{
		{partSettle, applying}, {partTokens, r.trained.from}, {partAnnounce, r.resultSent},
		{partSlowest, slowest}, {partGossip, r.held}, {partWitness, witnessed},
		{partQuorum, over}, {partLate, h.over[step]},
	}
	stages := make([]stage, 0, len(all)+1)
	reached := r.start
	for _, s := range all {
		if s.end.IsZero() {
			continue
		}
		if s.end.Before(reached) {
			s.end = reached
		}
		reached = s.end
		stages = append(stages, s)
	}
	return append(stages, stage{partPush, r.end})
}

// nameOf names the time that begins at a moment and ends at the next cut.
func nameOf(at time.Time, spans []span, stages []stage, fetched span) string {
	for _, part := range computing {
		if slices.ContainsFunc(spans, func(s span) bool { return s.part == part && within(at, s) }) {
			return part
		}
	}
	for _, s := range stages {
		if at.Before(s.end) {
			if s.part == partGossip && within(at, fetched) {
				return partFetch
			}
			return s.part
		}
	}
	return partPush
}

func within(at time.Time, s span) bool { return !at.Before(s.from) && at.Before(s.to) }

// lastAnnounced returns when the last client announced a result of a step.
func lastAnnounced(clients []*clientRecord, step uint32) time.Time {
	var last time.Time
	for _, c := range clients {
		if r := c.rounds[step]; r != nil && r.resultSent.After(last) {
			last = r.resultSent
		}
	}
	return last
}
