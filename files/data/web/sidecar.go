package web

import (
	"context"
	"net/url"
	"path"
	"slices"

	"github.com/psyche-go/psyche/files/data/tokens"
)

// checkSidecars looks for the files that describe a token file beside it, compares the
// size of a token that they say, and returns whether one says it. Only those of the first file of a location are asked for:
// thousands of questions after files that mostly are not there would be a burden to the
// server. An answer that is no success says that there is none.
func (c *client) checkSidecars(ctx context.Context, address string, o tokens.Options) (said bool, err error) {
	at, err := url.Parse(address)
	if err != nil || !slices.Contains(tokens.Extensions, path.Ext(at.Path)) {
		return false, nil // it has no name that they could be named after
	}
	for _, name := range tokens.Sidecars(at.Path) {
		beside := *at
		beside.Path, beside.RawPath = name, ""
		f := &file{client: c, address: beside.String(), name: Redact(beside.String())}
		if f.version, err = c.glimpse(ctx, f.address); err != nil {
			if ctx.Err() != nil {
				return false, ctx.Err()
			}
			continue
		}
		stated, found, err := tokens.ReadSidecar(ctx, f)
		if err != nil {
			return false, err
		}
		said = said || found
		if stated.Bytes = -1; found {
			if err := stated.Check(Redact(address), 0, o.TokenSize); err != nil {
				return false, err
			}
		}
	}
	return said, nil
}

// glimpse asks for the first byte of a file that may not be there, once.
func (c *client) glimpse(ctx context.Context, address string) (version, error) {
	ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	return c.part(ctx, address, make([]byte, 1), 0, nil)
}
