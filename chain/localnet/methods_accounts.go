package localnet

import "github.com/psyche-go/psyche/chain/sbpf/runtime"

func (e *Endpoint) getBalance(p parameters) any {
	key := p.key(0)
	v, _ := e.at(p, 1)
	lamports := uint64(0)
	if a := v.Account(key); a != nil {
		lamports = a.Lamports
	}
	return v.with(lamports)
}

func (e *Endpoint) getMinimumBalance(p parameters) any {
	var size int
	p.read(0, "size", &size)
	if size < 0 || size > runtime.MaxAccountSize {
		refuse(invalid("size %d, want 0 to %d", size, runtime.MaxAccountSize))
	}
	return e.server.ledger.config.Rent.Minimum(size)
}

func (e *Endpoint) getAccountInfo(p parameters) any {
	key := p.key(0)
	v, s := e.at(p, 1)
	a := must(encodeAccount(v.Account(key), s.Encoding, s.DataSlice))
	return v.with(a)
}

func (e *Endpoint) getMultipleAccounts(p parameters) any {
	var texts []string
	p.read(0, "addresses", &texts)
	if len(texts) > maxMultiple {
		refuse(invalid("%d addresses, at most %d", len(texts), maxMultiple))
	}
	keys := parseKeys(texts)
	v, s := e.at(p, 1)
	accounts := encodeAccounts(keys, v.Account, s.Encoding, s.DataSlice)
	return v.with(accounts)
}

func (e *Endpoint) getProgramAccounts(p parameters) any {
	program := p.key(0)
	v, s := e.at(p, 1)
	prepare(s.Filters)
	owned := v.Owned(program)
	found := []keyedJSON{}
	for _, key := range sortedKeys(owned) {
		if !passes(s.Filters, owned[key]) {
			continue
		}
		a := must(encodeAccount(owned[key], s.Encoding, s.DataSlice))
		found = append(found, keyedJSON{key.String(), a})
	}
	if s.WithContext {
		return v.with(found)
	}
	return found
}
