package follow_test

import (
	"errors"
	"fmt"
	"log"

	"github.com/psyche-go/psyche/base/hashchain"
	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/follow"
	"github.com/psyche-go/psyche/record/wire"
)

// A follower trusts the signatures of members. It trusts the host only with the order of the
// records. The follower applies the same records as the host, and detects records that an honest
// host never writes.
func Example() {
	authority, member := identity.FromSeed([32]byte{1}), identity.FromSeed([32]byte{2})
	first, err := coordinator.Genesis{
		RunID: "example", Host: coordinator.ClientID{9}, MainAuthority: coordinator.ClientID(authority.ID()),
		Draws: hashchain.New([32]byte{1}, 100).Commitment(),
		Config: coordinator.Config{
			WarmupTime: 60_000, CooldownTime: 60_000, RoundsPerEpoch: 4, MaxRoundTrainTime: 60_000, RoundWitnessTime: 1000,
			WaitingForMembersExtraTime: 1000, GlobalBatchSizeStart: 64, GlobalBatchSizeEnd: 64, TotalSteps: 8, InitMinClients: 1, MinClients: 1,
		},
		Model: coordinator.Model{MaxSeqLen: 16, Checkpoint: coordinator.Checkpoint{Kind: coordinator.CheckpointDummy}},
	}.State()
	if err != nil {
		log.Fatal(err)
	}
	genesis, err := follow.NewGenesis(authority, [32]byte{7}, &first)
	if err != nil {
		log.Fatal(err)
	}

	f, err := follow.Begin(genesis)
	if err != nil {
		log.Fatal(err)
	}
	join := append([]byte{byte(follow.KindAction)}, wire.SignAction(member, f.Run(), 1, coordinator.Join{})...)
	record, err := f.Apply(join)
	fmt.Println(record, err)
	record, err = f.Apply(follow.Record{Kind: follow.KindTick, Now: 1_000_000}.AppendTo(nil))
	fmt.Println(record, err)
	fmt.Printf("%v after %d records\n", f.State.RunState, f.Head().Index)

	_, err = f.Apply(join) // the same record again
	fmt.Println(errors.Is(err, follow.ErrRecord), err)

	// Output:
	// join by 8EYKVyNCsDFHkxos7V4kr8bMouYU2nPJ1QXk2ET8FBc7 <nil>
	// tick at 1970-01-01T00:16:40.000Z <nil>
	// WaitingForMembers after 3 records
	// true record 3: record does not follow from the previous records: join of 8EYKVyNCsDFHkxos7V4kr8bMouYU2nPJ1QXk2ET8FBc7 is refused: nonce is not above the last one
}
