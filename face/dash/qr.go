package dash

import (
	"net/http"
	"strings"

	"github.com/psyche-go/psyche/face/qrcode"
	"github.com/psyche-go/psyche/record/invite"
)

// serveQR sends the QR code of a run's invite link, as SVG. For a run on a server, the page passes
// the host name under which the browser reached the page.
func (p *Page) serveQR(w http.ResponseWriter, r *http.Request) {
	run, ok := p.find(w, r)
	if !ok {
		return
	}
	state, view := run.state()
	if state == nil {
		http.Error(w, "the state of this run is not known yet; retry in a few seconds", http.StatusNotFound)
		return
	}
	if command, _ := run.joinCommand(state, view.Run); command == "" || run.link(state, view.Run) == "" {
		http.Error(w, "this page has no invite link to this run", http.StatusNotFound)
		return
	}
	link := run.link(state, view.Run)
	if !invite.IsChain(link) {
		parsed, err := invite.Parse(strings.Replace(link, HostPlaceholder, r.URL.Query().Get("host"), 1))
		if err != nil {
			http.Error(w, "host: want the name or address of the server: "+err.Error(), http.StatusBadRequest)
			return
		}
		link = parsed.String()
	}
	code, err := qrcode.Of(link)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "image/svg+xml")
	w.Header().Set("Cache-Control", "max-age=60") // the page is redrawn every two seconds
	_, _ = w.Write(code.SVG())                    // fails if the reader has disconnected
}
