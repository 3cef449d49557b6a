package localnet

import (
	"math/bits"

	"github.com/psyche-go/psyche/chain/sbpf/runtime"
	"github.com/psyche-go/psyche/chain/transaction"
)

// Limits of a transaction's compute budget.
const (
	maxUnits        = 1_400_000
	unitsOfProgram  = 200_000 // default for an instruction
	unitsOfNative   = 3_000
	maxLoadedBytes  = 64 << 20
	loadedPerKey    = 64 // bytes that an account counts in addition to its data
	minHeap         = 32 << 10
	maxHeap         = 256 << 10
	microLamports   = 1_000_000
	budgetHeap      = 1
	budgetUnits     = 2
	budgetPrice     = 3
	budgetMaxLoaded = 4
)

// budget is the resource limit of a transaction.
type budget struct {
	units     uint64
	price     uint64 // micro-lamports per unit
	maxLoaded uint64
}

// budgetOf parses the compute budget instructions of a message.
func budgetOf(m *transaction.Message) (budget, *TransactionError) {
	b := budget{maxLoaded: maxLoadedBytes}
	seen := map[byte]bool{}
	var byDefault, limit uint64
	for i, in := range m.Instructions {
		key := m.Keys[in.Program]
		if _, native := natives[key]; native {
			byDefault += unitsOfNative
		} else {
			byDefault += unitsOfProgram
		}
		if key != transaction.ComputeBudgetProgram {
			continue
		}
		kind, value, ok := budgetInstruction(in.Data)
		switch {
		case !ok:
			return b, &TransactionError{errInstruction, i, runtime.ErrInvalidInstructionData}
		case seen[kind]:
			return b, &TransactionError{Name: errDuplicateInstruction, Index: i}
		case kind == budgetUnits:
			limit = value
		case kind == budgetPrice:
			b.price = value
		case kind == budgetMaxLoaded && value == 0:
			return b, errInvalidLoadedSize
		case kind == budgetMaxLoaded:
			b.maxLoaded = min(value, maxLoadedBytes)
		}
		seen[kind] = true
	}
	b.units = min(byDefault, maxUnits)
	if seen[budgetUnits] {
		b.units = min(limit, maxUnits)
	}
	return b, nil
}

// budgetInstruction parses one instruction. The heap always has its default size, even if an
// instruction requests another.
func budgetInstruction(data []byte) (kind byte, value uint64, ok bool) {
	if len(data) == 0 {
		return 0, 0, false
	}
	kind, data = data[0], data[1:]
	switch {
	case kind == budgetPrice && len(data) >= 8:
		return kind, le.Uint64(data), true
	case (kind == budgetUnits || kind == budgetMaxLoaded) && len(data) >= 4:
		return kind, uint64(le.Uint32(data)), true
	case kind == budgetHeap && len(data) >= 4:
		value = uint64(le.Uint32(data))
		return kind, value, value >= minHeap && value <= maxHeap && value%1024 == 0
	}
	return kind, 0, false
}

// fee returns the fee of a transaction in lamports: for its signatures, and for its unit limit,
// rounded up.
func (b budget) fee(signatures int, each uint64) uint64 {
	high, low := bits.Mul64(b.price, b.units)
	low, carry := bits.Add64(low, microLamports-1, 0)
	if high += carry; high >= microLamports {
		return 1<<64 - 1
	}
	priority, _ := bits.Div64(high, low, microLamports)
	sum, carry := bits.Add64(priority, uint64(signatures)*each, 0)
	if carry != 0 {
		return 1<<64 - 1
	}
	return sum
}
