package rpc

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/chain/transaction"
)

// signed returns a transaction and its bytes in base64.
func signed(t *testing.T) (transaction.Transaction, []byte) {
	t.Helper()
	key := identity.FromSeed([identity.SeedSize]byte{1})
	m, err := transaction.Compile(transaction.PublicKey(key.ID()), transaction.Hash{}, transaction.ComputeUnitLimit(5))
	if err != nil {
		t.Fatal(err)
	}
	made, err := m.Sign(key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := made.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return made, raw
}

// TestMethods calls every method, and checks that an invalid answer to each is an error.
func TestMethods(t *testing.T) {
	made, raw := signed(t)
	name := made.Name()
	text := base64.StdEncoding.EncodeToString(raw)
	key, hash := transaction.PublicKey{5}, transaction.Hash{6}
	ctx := t.Context()
	for method, test := range map[string]struct {
		params, result string
		ask            func(e *Endpoint) (any, error)
		want           any
	}{
		"getBlockHeight": {`[{"commitment":"confirmed"}]`, `9`, func(e *Endpoint) (any, error) { return e.BlockHeight(ctx, Confirmed) }, uint64(9)},
		"getBalance": {fmt.Sprintf(`[%q,{"commitment":"confirmed"}]`, key), `{"context":{"slot":1},"value":9}`,
			func(e *Endpoint) (any, error) { return e.Balance(ctx, key, Confirmed) }, uint64(9)},
		"getMinimumBalanceForRentExemption": {`[128]`, `9`, func(e *Endpoint) (any, error) { return e.RentExemption(ctx, 128) }, uint64(9)},
		"getLatestBlockhash": {`[{"commitment":"confirmed"}]`, fmt.Sprintf(`{"context":{"slot":3},"value":{"blockhash":%q,"lastValidBlockHeight":4}}`, hash),
			func(e *Endpoint) (any, error) { return e.LatestBlockhash(ctx, Confirmed) }, Blockhash{hash, 4, 3}},
		"getRecentPrioritizationFees": {fmt.Sprintf(`[[%q]]`, key), `[{"slot":1,"prioritizationFee":7},{"slot":2,"prioritizationFee":0}]`,
			func(e *Endpoint) (any, error) { return e.PrioritizationFees(ctx, []transaction.PublicKey{key}) }, []uint64{7, 0}},
		"getGenesisHash": {`null`, fmt.Sprintf("%q", hash), func(e *Endpoint) (any, error) { return e.GenesisHash(ctx) }, hash},
		"requestAirdrop": {fmt.Sprintf(`[%q,5]`, key), fmt.Sprintf("%q", name), func(e *Endpoint) (any, error) { return e.Airdrop(ctx, key, 5) }, name},
		"sendTransaction": {fmt.Sprintf(`[%q,{"encoding":"base64","skipPreflight":true,"maxRetries":0}]`, text), fmt.Sprintf("%q", name),
			func(e *Endpoint) (any, error) { return e.Send(ctx, raw) }, name},
		"getSignatureStatuses": {fmt.Sprintf(`[[%q,%q],{"searchTransactionHistory":true}]`, name, name),
			`{"context":{"slot":1},"value":[null,{"slot":5,"confirmations":1,"err":null,"confirmationStatus":"confirmed"}]}`,
			func(e *Endpoint) (any, error) {
				s, _, err := e.Statuses(ctx, []transaction.Signature{name, name}, true)
				return s, err
			}, []*Status{nil, {Slot: 5, Commitment: Confirmed}}},
		"getSignaturesForAddress": {fmt.Sprintf(`[%q,{"before":%q,"commitment":"confirmed","limit":10}]`, key, name),
			fmt.Sprintf(`[{"signature":%q,"slot":4,"err":{"InstructionError":[1,{"Custom":7}]}}]`, name),
			func(e *Endpoint) (any, error) {
				return e.History(ctx, key, name, transaction.Signature{}, 10, Confirmed)
			},
			[]Named{{name, 4, &TransactionError{"InstructionError", 1, "Custom", 7}}}},
		"getTransaction": {fmt.Sprintf(`[%q,{"commitment":"confirmed","encoding":"base64","maxSupportedTransactionVersion":0}]`, name),
			fmt.Sprintf(`{"slot":4,"transaction":[%q,"base64"],"meta":{"err":null,"fee":5000,"logMessages":["x"],"computeUnitsConsumed":8}}`, text),
			func(e *Endpoint) (any, error) { return e.Transaction(ctx, name, Confirmed) },
			&Landed{Slot: 4, Transaction: made, Logs: []string{"x"}, Fee: 5000, Units: 8}},
	} {
		t.Run(method, func(t *testing.T) {
			e := endpoint(t, node(t, func(asked string, params []json.RawMessage) string {
				if got, err := json.Marshal(params); asked != method || err != nil || string(got) != test.params {
					t.Errorf("asked %s %s, want %s %s", asked, got, method, test.params)
				}
				return `"result":` + test.result
			}))
			if got, err := test.ask(e); err != nil || !reflect.DeepEqual(got, test.want) {
				t.Errorf("%+v, %v, want %+v", got, err, test.want)
			}
			for _, bad := range []string{`"x"`, `[[]]`, `-1`, `{"context":5}`, `{}`} {
				e := endpoint(t, node(t, func(string, []json.RawMessage) string { return `"result":` + bad }))
				if got, err := test.ask(e); !errors.Is(err, ErrBadAnswer) {
					t.Errorf("%s became %+v, %v", bad, got, err)
				}
			}
		})
	}
}

func TestUnknownTransaction(t *testing.T) {
	e := endpoint(t, node(t, func(string, []json.RawMessage) string { return `"result":null` }))
	if got, err := e.Transaction(t.Context(), transaction.Signature{1}, Confirmed); got != nil || err != nil {
		t.Errorf("got %v, %v; want got == nil and nil error", got, err)
	}
}

// TestAnotherTransaction checks that a node cannot answer with a different transaction.
func TestAnotherTransaction(t *testing.T) {
	_, raw := signed(t)
	e := endpoint(t, node(t, func(string, []json.RawMessage) string {
		return fmt.Sprintf(`"result":{"slot":4,"transaction":[%q,"base64"],"meta":{}}`, base64.StdEncoding.EncodeToString(raw))
	}))
	if _, err := e.Transaction(t.Context(), transaction.Signature{1}, Confirmed); !errors.Is(err, ErrBadAnswer) {
		t.Errorf("error %v", err)
	}
}

func TestReached(t *testing.T) {
	for _, test := range []struct {
		is, wanted Commitment
		want       bool
	}{{Processed, Confirmed, false}, {Confirmed, Confirmed, true}, {Finalized, Confirmed, true}, {"", Processed, false}} {
		if got := (&Status{Commitment: test.is}).Reached(test.wanted); got != test.want {
			t.Errorf("%s reaches %s: %v", test.is, test.wanted, got)
		}
	}
}
