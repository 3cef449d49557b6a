package localnet

import "github.com/psyche-go/psyche/chain/sbpf/runtime"

func (e *Endpoint) getBalance(p *parameters) (any, error) {
	key := p.key(0)
	v, _ := e.at(p, 1)
	if p.err != nil {
		return nil, p.err
	}
	lamports := uint64(0)
	if a := v.Account(key); a != nil {
		lamports = a.Lamports
	}
	return v.with(lamports), nil
}

func (e *Endpoint) getMinimumBalance(p *parameters) (any, error) {
	var size int
	if p.read(0, "size", &size); p.err != nil {
		return nil, p.err
	}
	if size < 0 || size > runtime.MaxAccountSize {
		return nil, invalid("size %d, want 0 to %d", size, runtime.MaxAccountSize)
	}
	return e.server.ledger.config.Rent.Minimum(size), nil
}

func (e *Endpoint) getAccountInfo(p *parameters) (any, error) {
	key := p.key(0)
	v, s := e.at(p, 1)
	if p.err != nil {
		return nil, p.err
	}
	a, err := encodeAccount(v.Account(key), s.Encoding, s.DataSlice)
	if err != nil {
		return nil, err
	}
	return v.with(a), nil
}

func (e *Endpoint) getMultipleAccounts(p *parameters) (any, error) {
	var texts []string
	if p.read(0, "addresses", &texts); p.err != nil {
		return nil, p.err
	}
	if len(texts) > maxMultiple {
		return nil, invalid("%d addresses, at most %d", len(texts), maxMultiple)
	}
	keys, err := parseKeys(texts)
	if err != nil {
		return nil, err
	}
	v, s := e.at(p, 1)
	if p.err != nil {
		return nil, p.err
	}
	accounts, err := encodeAccounts(keys, v.Account, s.Encoding, s.DataSlice)
	if err != nil {
		return nil, err
	}
	return v.with(accounts), nil
}

func (e *Endpoint) getProgramAccounts(p *parameters) (any, error) {
	program := p.key(0)
	v, s := e.at(p, 1)
	if p.err != nil {
		return nil, p.err
	}
	if err := prepare(s.Filters); err != nil {
		return nil, err
	}
	owned := v.Owned(program)
	found := []keyedJSON{}
	for _, key := range sortedKeys(owned) {
		if !passes(s.Filters, owned[key]) {
			continue
		}
		a, err := encodeAccount(owned[key], s.Encoding, s.DataSlice)
		if err != nil {
			return nil, err
		}
		found = append(found, keyedJSON{key.String(), a})
	}
	if s.WithContext {
		return v.with(found), nil
	}
	return found, nil
}
