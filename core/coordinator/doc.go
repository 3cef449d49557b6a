// Package coordinator is the state machine that runs a training run: who takes part,
// which round it is, what each member has to do, and what the witnesses proved.
//
// It is pure. A State is a bounded value; time and randomness are passed in; nothing
// but integers decides. Every host (the TCP server, a simulator, a client's mirror, a
// chain) that feeds the same actions and ticks gets the same bytes.
//
//	state, err := coordinator.New(runID, host, config, model)
//	err = state.Apply(from, nonce, coordinator.Join{Epoch: state.Progress.Epoch})
//	changed := state.Tick(now, draw)
//	bytes := state.AppendTo(nil)
//
// Apply takes one action whose signature the host has verified, and either changes the
// state or refuses with a Code and changes nothing. It never moves the run to another
// RunState: that is Tick's work, at most one step a call. A host ticks after
// each accepted action and when Due says that something is due.
//
// # The phases of a run
//
//	WaitingForMembers  until InitMinClients are pending and have been for
//	                   WaitingForMembersExtraTime
//	Warmup             members load the model and say Ready; ends when all healthy
//	                   members have, or after WarmupTime; fewer than MinClients
//	                   lead back to WaitingForMembers
//	RoundTrain         until a quorum of the elected witnesses proved what they hold, or
//	                   cannot any more, or MaxRoundTrainTime
//	RoundWitness       late witnesses still count, until no healthy elected member is
//	                   silent, or for RoundWitnessTime; then the next RoundTrain or
//	                   Cooldown. Where all have witnessed it passes at once; where there
//	                   is a quorum, who is slow, or whose own result it denies, is not
//	                   waited for.
//	Cooldown           until all healthy members reported their model, or CooldownTime
//	Finished           after TotalSteps rounds, or closed while Paused
//	Paused             after SetPaused, at the end of the epoch's Cooldown or at once
//	                   outside rounds
//
// # Who may do what
//
// A run has three offices, which one key may hold together. The host ticks it and may
// withdraw clients whose connection is gone. The main authority configures, pauses,
// ejects and closes; the host may not, unless it is the main authority, which it is when
// Genesis names none. The join authority says who is admitted to a permissioned run: a
// grantee, and up to MaxDelegates keys that the grantee names, each with a place of its
// own. Whether a run is permissioned, and who holds the offices, is fixed by Genesis.
//
// A client that the main authority ejects sits out the rest of the epoch and the whole
// next one, even if it has left before; who was found to cheat, also by the proof that it signed
// two results for one batch, Config.EjectionEpochs after the running one. In a
// permissionless run it may come back under another key anyway; for good a client is kept
// out by ending its authorization.
//
// # Membership
//
// A key is in one place: a healthy member of the epoch (Epoch.Clients) or pending
// (Pending), never both. When the next epoch's Warmup starts, all pending clients become
// members that were members before, and of the newcomers those that are drawn (seats.go); who
// left a running epoch, or was dropped from it, may take its own seat back (Return). Healthy
// members need not join again: at the end of Cooldown they move to the front of Pending, in
// their order, before newcomers. A member that
// had no accepted action in a whole epoch, from Warmup to Cooldown, is Dropped instead:
// it sent neither Ready nor a checkpoint report, which every live member does.
// A round's members, and with them its batches and witnesses, are fixed when it starts.
// Whoever leaves keeps its entry, marked Dropped, Withdrawn or Ejected, until the
// round's end; its batches are not waited for (State.Awaited).
//
// One committee drops nobody. What witnesses of a round find makes a member late; what
// those of a later round find drops it, if a quorum of them denies its result, or makes it
// slow: it stays, and nobody waits for it. A third of the epoch's first members at most are
// dropped in a round, and slow in an epoch.
//
// # Audits and trials
//
// Who trains nothing in a round has the time to audit results of others. What it audits is its own
// affair, and an audit that passes leaves nothing here. What of a result is looked at follows from
// its round's audit seed (State.AuditSeed), which what the witnesses reveal and the next draw decide.
//
// Whoever finds that a result is not what its batch gives, or that its trainer opens it to nobody,
// may accuse (Accuse). The members of the next round, MaxJury at most, which its seed draws, are the
// jury (Vote). Eleven twentieths of it eject the accused, wherever it is, or the member that accused it wrongly;
// a silence that others did not meet, or a jury that does not agree, is a complaint of the accuser
// (Client.Complaints). A trial goes on in the absence of both, through Cooldown and into the next
// epoch. Nobody waits for any of it, and nobody is late, dropped or slow because of it.
//
// # Which model an epoch starts from
//
// Model.Checkpoint, always and for everybody. When a quorum of the healthy members, and a third of
// those that the epoch began with, report the same digest in Cooldown, the checkpoint becomes the P2P
// kind with that digest and remembers where it came from (Checkpoint.Origin). Without such a quorum
// nobody can say which model of the last step is the right one: the run falls back to the newest that
// as many reported while rounds ran (Epoch.Commit), and without one to where the epoch began. Every
// member whose model is not that one has to load it. If no member of an epoch that starts holds the
// checkpoint's model, it falls back to the newest recorded one that a member holds (Client.HoldsEarlier)
// or of which a member reported an upload (State.Uploads), or to its origin, and optimizers start
// afresh. Steps and data go on as they were, so that
// nothing is trained on twice; State.Lapses has the steps that the model has not seen.
//
// # Rounds without witnesses
//
// A round with fewer witnesses than its quorum counts no result and ends the epoch
// (Cooldown). It proves nothing against anybody: a health check needs the quorum of a
// round's witnesses, so silence of the witnesses drops no trainer. A member that is really gone
// is found by the missing report and Ready, as said under Membership.
//
// # What false positives of the witnesses' filters can do
//
// A filter of a round with n results holds an item that was not added with probability
// (1 − e^(−7n/2560))^7: 0.8 % for 256 results, 10⁻⁵ for 80, nothing to speak of for few.
// For the result of a trainer to count, or for a silent trainer to look healthy, though
// nobody holds it, a quorum of filters must err about the same item. All filters of a
// round share their keys, so the filters of witnesses that hold the same results err
// together. The keys are not known before the round, but a trainer that makes results
// until one of them hits can have a second commitment for its own batch pass the
// filters. What the filters let pass is therefore only a candidate; the exact list is
// what hashes to the root that a quorum signed (Round.QuorumRoot), and a client whose
// list does not is missing something and must not apply it. A witness cannot widen its
// filter at will: one with more bits than the round's items set is refused.
package coordinator
