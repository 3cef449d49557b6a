package recipe

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// SeqLen is the number of tokens of a sequence in all measurements of this package.
const SeqLen = 256

// method is the way in which members share their training over a kind of link.
type method struct {
	atLeast Mbits // slowest link for this method

	distro     bool
	firstSteps int // optimizer steps of a member in the first rounds
	steps      int // optimizer steps of a member in the later rounds
	topK       int
	lag        int
	perWeight  float64 // bytes of a result for each weight
	reason     string
}

// methods lists the methods for members that know each other, from fast to slow links. The losses
// were measured with three members and the small model (docs/local-steps.md, "When"). A result has
// 458 B for each token with 80 coefficients, and 214 B with 128 coefficients and triple the steps.
// This is 0.104 B and 0.146 B for each weight (perWeight).
var methods = []method{
	{
		atLeast: 100, firstSteps: 4, steps: 4, topK: 80, lag: 1, perWeight: 0.104,
		reason: "4 local steps per round: loss 2.052 after 612 k tokens, with 461 B per token (measured)",
	}, {
		atLeast: 20, firstSteps: 4, steps: 12, topK: 128, lag: 1, perWeight: 0.146,
		reason: "4 local steps per round at first, later 12: loss 2.126 after 621 k tokens, with 310 B per token (measured)",
	}, {
		atLeast: 5, firstSteps: 12, steps: 12, topK: 128, lag: 2, perWeight: 0.146,
		reason: "12 local steps per round, exchanged during the next round: loss 2.322 after 611 k tokens, with 219 B per token (measured)",
	}, {
		firstSteps: 24, steps: 24, topK: 160, lag: 2, perWeight: 0.17,
		reason: "24 local steps per round, because an exchange takes a long time: loss 2.42 after 614 k tokens with 125 B per token",
	},
}

// audited is the method for members that do not know each other. An audit repeats a single step, so the
// result does not depend on optimizer state that only its member has. perWeight is 6,349 B for 2.25 M
// weights (proof/bench/parity).
var audited = method{
	distro: true, firstSteps: 1, steps: 1, topK: 8, lag: 1, perWeight: 0.0028,
	reason: "DisTrO, one step per round: audits repeat single steps, as in configs/cheats, where juries eject all cheating members",
}

// The smallest open run: with four auditors, rounds in which all auditors collude are rare
// (docs/trust.md, "Juries and audits").
const (
	auditors    = 4
	openMembers = 8
	mostMinimum = 16 // maximum number of clients that begin an open run; 16 tolerate five dishonest members
)

// Shares of a run's rounds and tokens.
const (
	warmupShare = 0.10 // of the rounds, with rising learning rate
	stableShare = 0.70 // of the rounds, until the learning rate falls
	growShare   = 0.30 // of the tokens, while the number of local steps grows
)

// Seconds for the parts of a run.
const (
	latency     = 0.5  // waits of a round, except for the transfer of results: 0.09 s on loopback, 0.57 s with a round trip of 100 ms (proof/bench/peers)
	leastLimit  = 30.0 // all measured configurations in configs/ have at least 30 s
	leastEpoch  = 120.0
	leastWarmup = 60.0
	leastRounds = 20
)

// plan has the numbers from which the table derives its values.
type plan struct {
	Request
	method
	seqLen   int // tokens of a sequence
	members  int // expected
	initial  int // clients that begin an epoch
	trainers int // members that train in a round
	percent  int // of the members that audit
	result   float64
	rounds   int
	tokens   float64 // of the whole run
	each     float64 // seconds of a later round with all members
	limit    float64 // seconds for the results of a round
	warmup   float64 // seconds for loading the model
	epoch    float64 // seconds
}

// LeastTokens returns the number of tokens that one round trains: the minimum for a text.
func (r Request) LeastTokens() uint64 {
	p := begin(r)
	return uint64(p.batch(p.steps) * p.seqLen)
}

// newPlan computes the plan of a request.
func newPlan(r Request) (plan, error) {
	p := begin(r)
	if minimum := r.LeastTokens(); r.Tokens < minimum {
		return p, fmt.Errorf("%w: %d tokens, but one round of %d members trains %d", ErrText, r.Tokens, p.members, minimum)
	}
	p.result = p.perWeight * float64(r.Parameters)
	p.setRounds()
	p.setTimes()
	return p, nil
}

// begin chooses the method and the numbers of members. Without a model, it assumes that the model takes
// sequences of SeqLen tokens.
func begin(r Request) plan {
	p := plan{Request: r, seqLen: min(SeqLen, cmp.Or(r.MaxTokens, SeqLen)), members: r.Friends + 1, initial: 1, trainers: r.Friends + 1}
	if r.Open {
		p.method = audited
		p.initial = min(max(openMembers, p.members*2/3), mostMinimum)
		p.percent = (100*auditors + p.initial - 1) / p.initial
		p.trainers = p.members - p.members*p.percent/100
		p.topK = (audited.topK*100 + 99 - p.percent) / (100 - p.percent)
		p.perWeight *= float64(p.topK) / float64(audited.topK)
	} else {
		p.method = methods[slices.IndexFunc(methods, func(m method) bool { return r.Link >= m.atLeast || r.Friends == 0 })]
	}
	return p
}

// batch returns the number of sequences in a round if each trainer makes this number of steps. A local step
// has one sequence: with larger steps, the small model learned less from the same text. A step of
// DisTrO has four sequences, as docs/server.md recommends.
func (p plan) batch(steps int) int {
	if p.distro {
		return 4 * p.trainers
	}
	return steps * p.trainers
}

// computing returns the seconds that members need together for a number of sequences.
func (p plan) computing(sequences, members int) float64 {
	return float64(sequences*p.seqLen) / p.Speed / float64(members)
}

// exchange returns the seconds in which a member sends its result to all others.
func (p plan) exchange() float64 {
	if p.members == 1 {
		return 0
	}
	return latency + float64(p.members-1)*p.result*8/(float64(p.Link)*1e6)
}

// seconds returns the duration of a round with a number of local steps.
func (p plan) seconds(steps int) float64 {
	computing := p.computing(p.batch(steps), p.trainers)
	if p.lag > 1 {
		return max(computing, p.exchange())
	}
	return computing + p.exchange()
}

// setRounds sets the number of rounds that fill the hours. In the first rounds, the number of local
// steps grows linearly.
func (p *plan) setRounds() {
	mean := (p.firstSteps + p.steps) / 2
	growing := growShare / float64(p.batch(mean))
	later := (1 - growShare) / float64(p.batch(p.steps))
	share := growing / (growing + later) // of the rounds
	p.each = p.seconds(p.steps)
	perRound := share*p.seconds(mean) + (1-share)*p.each
	p.rounds = max(leastRounds, int(math.Round(p.Hours*3600/perRound)))
	p.tokens = float64(p.rounds*p.seqLen) * (share*float64(p.batch(mean)) + (1-share)*float64(p.batch(p.steps)))
}

// setTimes sets the time limits. A round may take three times as long as a single machine needs for
// all of its sequences, because members may leave, and machines and links differ. A short run has four
// epochs, so that friends who come later can still join.
func (p *plan) setTimes() {
	model := 4 * float64(p.Parameters) * 8 / (float64(p.Link) * 1e6)
	round := 3 * (p.computing(p.batch(p.steps), 1) + p.exchange())
	p.limit = math.Ceil(max(leastLimit, round))
	p.warmup = math.Ceil(max(leastWarmup, 3*model))
	p.epoch = max(leastEpoch, 2*p.limit, 2*p.warmup)
	if short := math.Ceil(max(p.Hours*3600/4, 2*round, 4)); short < p.epoch {
		p.epoch = short
		p.limit = min(p.limit, short/2)
		p.warmup = min(p.warmup, short/2)
	}
}

func (p plan) share(of float64) int { return int(math.Round(of * float64(p.rounds))) }
