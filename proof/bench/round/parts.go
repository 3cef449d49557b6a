package main

import (
	"slices"
	"time"

	"github.com/psyche-go/psyche/record/event"
)

// Parts of a round. Parts with computation come from spans, the others from the client's waits.
const (
	partDecide   = "settle"         // waiting for the results to apply now, and deciding which of them count
	partDecode   = event.SpanDecode // reading results
	partApply    = "apply"          // moving the weights; includes decoding if it is not reported separately
	partTokens   = "tokens"         // reading tokens, and everything else before training
	partTrain    = "train"          // forward, backward; includes encoding if it is not reported separately
	partEncode   = event.SpanEncode // compressing this client's result
	partAnnounce = "announce"       // publishing this client's result
	partSlowest  = "slowest"        // until the last client has announced its result
	partGossip   = "gossip"         // until the last announcement has arrived
	partFetch    = "fetch"          // until the last result has arrived and is verified
	partWitness  = "witness"        // until the host has acknowledged this client's proof, or the round continues without it
	partQuorum   = "quorum"         // until the host publishes RoundWitness
	partLate     = "late"           // until the host publishes the next round
	partPush     = "push"           // until the next round's state has arrived
	partCommit   = event.SpanCommit // of the host: syncing its journal; within the other parts
)

// parts lists the parts of a round in their order.
var parts = []string{
	partDecide, partDecode, partApply, partTokens, partTrain, partEncode, partAnnounce,
	partSlowest, partGossip, partFetch, partWitness, partQuorum, partLate, partPush,
}

// computing lists the parts with computation. If two spans overlap, the earlier one in this list
// gets the time, because encoding is included in a client's reported training.
var computing = []string{partEncode, partDecode, partTrain, partApply}

// dissection is a client's round: its parts add up to total.
type dissection struct {
	total time.Duration
	parts map[string]time.Duration
}

// stage is a wait that ends at a time. A wait without a recorded end is left out, and its time is
// part of the next wait.
type stage struct {
	part string
	end  time.Time
}

// dissect assigns every moment of a round to a part. slowest is the time at which the last client
// announced its result.
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

// stagesOf returns the waits of a round in their order. No wait ends before the previous one.
func stagesOf(step uint32, r *clientRound, spans []span, h *hostRecord, slowest time.Time) []stage {
	applying := r.trained.from
	for _, s := range spans {
		if s.part == partApply && (applying.IsZero() || s.from.Before(applying)) {
			applying = s.from
		}
	}
	witnessed, over := r.witnessSent, h.witness[step]
	if !over.IsZero() && over.Before(witnessed) { // then the round did not wait for the acknowledgement
		witnessed = over
	}
	all := []stage{
		{partDecide, applying}, {partTokens, r.trained.from}, {partAnnounce, r.resultSent},
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

// nameOf returns the part that contains the time from a moment to the next boundary.
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

// lastAnnounced returns the time at which the last client announced a result of a step.
func lastAnnounced(clients []*clientRecord, step uint32) time.Time {
	var last time.Time
	for _, c := range clients {
		if r := c.rounds[step]; r != nil && r.resultSent.After(last) {
			last = r.resultSent
		}
	}
	return last
}
