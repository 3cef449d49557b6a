package programtest

import "github.com/psyche-go/psyche/core/coordinator"

// random makes a few clients, members or not, send any action at any time.
func random(r *pair, seed uint64) error {
	g := newGenerator(seed, 5)
	g.ids = append(g.ids, newGenerator(seed, 15).ids[5:5+g.IntN(10)]...)
	if code, err := r.genesis(g.genesis()); code != 0 || err != nil {
		return err
	}
	if err := g.admit(r); err != nil {
		return err
	}
	return g.walk(r, 60+g.IntN(240))
}

// admit authorizes half of the clients if the run requires it.
func (g *generator) admit(r *pair) error {
	if !r.s.Authority.Permissioned {
		return nil
	}
	for _, id := range g.ids[:len(g.ids)/2+1] {
		g.nonce++
		if _, err := r.apply(r.s.Authority.Join, g.nonce, encode(coordinator.Authorize{Grantee: id, Allowed: true})); err != nil {
			return err
		}
	}
	return nil
}
