package dash

import (
	"fmt"
	"html"
	"net/http"
	"strings"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/config"
)

// tones are the colours of the page's icon, by the state of the run.
var tones = map[string]string{"good": "#1f9d5b", "warn": "#c27a00", "bad": "#c62f26", "muted": "#6b7688", "": "#2348b8"}

// icons returns the page's icon in each colour, by tone.
func icons() (map[string]*file, error) {
	icon, err := asset("icon.svg")
	if err != nil {
		return nil, err
	}
	all := make(map[string]*file, len(tones))
	for tone, colour := range tones {
		if all[tone], err = packed(kinds[".svg"], strings.Replace(icon, tones[""], colour, 1)); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// servedIcon returns a handler for the page's icon. The query parameter "tone" selects its colour.
func servedIcon() http.HandlerFunc {
	all, err := icons()
	if err != nil {
		panic("dash: embedded file icon.svg: " + err.Error())
	}
	return func(w http.ResponseWriter, r *http.Request) {
		icon := all[r.URL.Query().Get("tone")]
		if icon == nil {
			http.Error(w, "tone: want good, warn, bad or muted", http.StatusBadRequest)
			return
		}
		icon.ServeHTTP(w, r)
	}
}

// serveIndex sends the page with a description for programs that show a preview of its address.
func (p *Page) serveIndex(w http.ResponseWriter, r *http.Request) {
	page, err := asset("index.html")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	scheme := "http"
	if r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https" {
		scheme = "https"
	}
	title, about := preview(p.runs())
	var meta strings.Builder
	for _, property := range [][2]string{{"og:type", "website"}, {"og:site_name", "Psyche"}, {"og:title", title}, {"og:description", about}, {"og:image", scheme + "://" + r.Host + "/card.png"}} {
		fmt.Fprintf(&meta, "<meta property=\"%s\" content=\"%s\">\n", property[0], html.EscapeString(property[1]))
	}
	fmt.Fprintf(&meta, "<meta name=\"description\" content=\"%s\">\n<meta name=\"twitter:card\" content=\"summary_large_image\">\n", html.EscapeString(about))
	var preload strings.Builder // otherwise the browser finds the modules only step by step, which takes several round trips
	for _, name := range modules {
		fmt.Fprintf(&preload, "<link rel=\"modulepreload\" href=\"%s\">\n", name)
	}
	f, err := p.packIndex(strings.NewReplacer("<link rel=\"icon\"", meta.String()+"<link rel=\"icon\"", "<script", preload.String()+"<script").Replace(page))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	f.ServeHTTP(w, r)
}

// packIndex compresses the page, unless it is the page of the previous request.
func (p *Page) packIndex(content string) (*file, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.index != nil && string(p.index.plain) == content {
		return p.index, nil
	}
	f, err := packed(kinds[".html"], content)
	if err == nil {
		p.index = f
	}
	return f, err
}

// preview returns the title and the description of the page: of the only run, or of several.
func preview(runs []Run) (title, about string) {
	if len(runs) != 1 {
		return fmt.Sprintf("Psyche: %d training runs", len(runs)), "Models that many people train together. Every reader can verify each run in the browser."
	}
	s, _ := runs[0].state()
	if s == nil {
		return "Psyche", "A training run whose log is being read."
	}
	title, about = config.NameOf(s.Model.Definition)
	if title == "" {
		title = s.RunID
	}
	if about != "" {
		about += " "
	}
	total, at := s.Config.TotalSteps, min(max(s.Progress.Step, 1)-1, s.Config.TotalSteps)
	switch s.RunState {
	case coordinator.Finished:
		about += fmt.Sprintf("Finished after %d rounds.", at)
	case coordinator.WaitingForMembers:
		about += fmt.Sprintf("Waiting for members, %d of %d rounds done: take part.", at, total)
	default:
		about += fmt.Sprintf("%d members, %d of %d rounds done.", len(s.Epoch.Clients), at, total)
	}
	return title, about + " Verify it in your browser."
}
