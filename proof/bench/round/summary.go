package main

import (
	"cmp"
	"errors"
	"slices"
	"time"
)

// summary is the result of a row. Its JSON form is the output of -json.
type summary struct {
	Row     string  `json:"row"`
	Skipped string  `json:"skipped,omitempty"` // reason why there are no results
	Batch   int     `json:"batch"`
	DelayMS float64 `json:"delay_ms"`
	Rounds  int     `json:"rounds"` // that counted
	Lost    int     `json:"lost"`   // a client's rounds without a result

	RoundMS         statistic            `json:"round_ms"`
	TrainShare      statistic            `json:"train_share"`   // training, including encoding, of the round
	ComputeShare    statistic            `json:"compute_share"` // training, decoding and applying
	Parts           map[string]statistic `json:"parts_ms"`
	CommitMS        *statistic           `json:"commit_ms,omitempty"`   // of a round, at the server
	NotTold         []string             `json:"not_told,omitempty"`    // parts that the event logs do not report
	StartSeconds    float64              `json:"start_seconds"`         // from the first Warmup to the first round
	CooldownSeconds float64              `json:"cooldown_seconds"`      // after the last round
	TokensPerSecond float64              `json:"tokens_per_second"`     // of all clients
	PeerBytes       float64              `json:"peer_bytes_per_round"`  // sent by a client to peers in a round
	ServerBytes     float64              `json:"server_bytes_received"` // received by a client from the server in a round

	Load        float64  `json:"load_1m"`     // load average at the row's end
	ClientsCPU  *float64 `json:"clients_cpu"` // share of all cores' time used by clients
	OthersCPU   *float64 `json:"other_cpu"`   // share of all cores' time used by other programs
	PerSequence float64  `json:"train_seconds_per_sequence"`
}

// statistic is a median and a mean over rounds and clients.
type statistic struct {
	Median float64 `json:"median"`
	Mean   float64 `json:"mean"`
}

func statisticOf(values []float64) statistic {
	if len(values) == 0 {
		return statistic{}
	}
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return statistic{median(values), sum / float64(len(values))}
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

var errNoInnerRounds = errors.New("the event logs contain no round between two other rounds of the same epoch; run more rounds")

// summarise analyses the inner rounds of all clients. window is from the start of the first to the
// end of the last of these rounds.
func summarise(clients []*clientRecord, host *hostRecord) (s summary, window span, err error) {
	var rounds, train, compute, perSequence []float64
	ofPart := map[string][]float64{}
	steps := map[uint32]bool{}
	tokens := 0
	for _, c := range clients {
		for step, r := range c.rounds {
			if !c.inner(step) {
				continue
			}
			d := dissect(step, r, c, host, lastAnnounced(clients, step))
			total := d.total.Seconds()
			steps[step] = true
			rounds = append(rounds, 1000*total)
			training := d.parts[partTrain] + d.parts[partEncode]
			train = append(train, training.Seconds()/total)
			compute = append(compute, (training+d.parts[partApply]+d.parts[partDecode]).Seconds()/total)
			for _, part := range parts {
				ofPart[part] = append(ofPart[part], 1000*d.parts[part].Seconds())
			}
			if r.sequences > 0 {
				perSequence = append(perSequence, r.trained.to.Sub(r.trained.from).Seconds()/float64(r.sequences))
			} else {
				s.Lost++
			}
			tokens += r.tokens
			window = window.with(r.start, r.end)
		}
	}
	if len(steps) == 0 {
		return s, window, errNoInnerRounds
	}
	s.Rounds, s.RoundMS, s.TrainShare, s.ComputeShare = len(steps), statisticOf(rounds), statisticOf(train), statisticOf(compute)
	s.Parts = map[string]statistic{}
	for part, values := range ofPart {
		s.Parts[part] = statisticOf(values)
	}
	if len(perSequence) > 0 {
		s.PerSequence = median(perSequence)
	}
	s.TokensPerSecond = float64(tokens) / window.to.Sub(window.from).Seconds()
	s.notTold(clients, host)
	s.CommitMS = commits(host, steps)
	s.StartSeconds, s.CooldownSeconds = edges(clients)
	s.PeerBytes, s.ServerBytes = traffic(clients, window)
	return s, window, nil
}

// with extends a span.
func (s span) with(from, to time.Time) span {
	if s.from.IsZero() || from.Before(s.from) {
		s.from = from
	}
	if to.After(s.to) {
		s.to = to
	}
	return s
}

// notTold finds the parts that no client reports, whose time is in another part.
func (s *summary) notTold(clients []*clientRecord, host *hostRecord) {
	logged := map[string]bool{partCommit: len(host.commits) > 0}
	for _, c := range clients {
		logged[partGossip] = logged[partGossip] || c.heard
		logged[partFetch] = logged[partFetch] || c.heard
		for part := range c.kinds {
			logged[part] = true
		}
	}
	for _, part := range []string{partDecode, partEncode, partGossip, partFetch, partCommit} {
		if !logged[part] {
			s.NotTold = append(s.NotTold, part)
			delete(s.Parts, part)
		}
	}
}

// commits sums up the journal's time at the server in each of some rounds.
func commits(host *hostRecord, steps map[uint32]bool) *statistic {
	if len(host.commits) == 0 {
		return nil
	}
	var sums []float64
	for step := range steps {
		from, to := host.train[step], host.over[step]
		sum := 0.0
		for _, c := range host.commits {
			if c.to.After(from) && !c.to.After(to) {
				sum += 1000 * c.to.Sub(c.from).Seconds()
			}
		}
		sums = append(sums, sum)
	}
	f := statisticOf(sums)
	return &f
}

// edges returns the durations of the first warmup and the last cooldown that clients saw.
func edges(clients []*clientRecord) (start, cooldown float64) {
	var starts, cooldowns []float64
	for _, c := range clients {
		for i, next := range c.phases {
			if i == 0 {
				continue
			}
			p := c.phases[i-1]
			switch {
			case p.runState == stateWarmup && next.runState == stateTrain:
				starts = append(starts, next.at.Sub(p.at).Seconds())
			case p.runState == stateCooldown:
				cooldowns = append(cooldowns, next.at.Sub(p.at).Seconds())
			}
		}
	}
	return statisticOf(starts).Median, statisticOf(cooldowns).Median
}

// traffic returns the bytes per client and round between the first and the last report in the
// window.
func traffic(clients []*clientRecord, window span) (peers, server float64) {
	var toPeers, fromServer []float64
	for _, c := range clients {
		within := slices.DeleteFunc(slices.Clone(c.wire), func(w wireAt) bool {
			return w.at.Before(window.from) || w.at.After(window.to)
		})
		if len(within) < 2 {
			continue
		}
		first, last := within[0].wire, within[len(within)-1].wire
		rounds := float64(cmp.Or(last.Step-first.Step, 1))
		toPeers = append(toPeers, float64(last.P2PSent-first.P2PSent)/rounds)
		fromServer = append(fromServer, float64(last.ServerReceived-first.ServerReceived)/rounds)
	}
	return statisticOf(toPeers).Mean, statisticOf(fromServer).Mean
}
