package wandb

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/psyche-go/psyche/face/metrics"
	"github.com/psyche-go/psyche/face/tracker"
)

// Service is the address of the service with the credentials.
type Service struct {
	URL string // default: "https://api.wandb.ai"
	Key string
}

// Limits of a request.
const (
	timeout     = 15 * time.Second
	maxResponse = 1 << 20
)

// online is a sink that sends rows.
type online struct {
	service Service
	run     Run
	id      string
	client  *http.Client
	at      string // address of the run's stream; empty before the start
	sent    int    // lines
	last    map[string]any
	begun   time.Time
}

// Online returns a sink that sends rows to the service. It sends nothing before the first row.
func Online(s Service, run Run) (tracker.Sink, error) {
	s.URL = cmp.Or(s.URL, "https://api.wandb.ai")
	if u, err := url.Parse(s.URL); err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return nil, fmt.Errorf("address %q of Weights & Biases: want http:// or https://", s.URL)
	}
	s.URL = strings.TrimRight(s.URL, "/")
	run.Project = cmp.Or(run.Project, "psyche")
	id, err := newID()
	return &online{service: s, run: run, id: id, client: &http.Client{Timeout: timeout}, last: map[string]any{}, begun: time.Now()}, err
}

// beginRun creates the run. Its variables have the names of the service's schema.
const beginRun = `mutation UpsertBucket($name: String!, $project: String, $entity: String, $groupName: String, $displayName: String, $config: JSONString) {
  upsertBucket(input: {name: $name, modelName: $project, entityName: $entity, groupName: $groupName, displayName: $displayName, config: $config}) {
    bucket { name project { name entity { name } } }
  }
}`

// begin creates the run and gets the address for its lines.
func (o *online) begin(ctx context.Context) error {
	settings, err := o.run.settings()
	if err != nil {
		return fmt.Errorf("%w: %w", tracker.ErrGivenUp, err)
	}
	variables := map[string]any{"name": o.id, "project": o.run.Project, "displayName": o.run.Name, "config": settings}
	for name, value := range map[string]string{"entity": o.run.Entity, "groupName": o.run.Group} {
		if value != "" {
			variables[name] = value
		}
	}
	var answer struct {
		Data struct {
			UpsertBucket *struct {
				Bucket struct {
					Name    string
					Project struct {
						Name   string
						Entity struct{ Name string }
					}
				}
			}
		}
		Errors []struct{ Message string }
	}
	if err := o.post(ctx, o.service.URL+"/graphql", map[string]any{"query": beginRun, "variables": variables}, &answer); err != nil {
		return err
	}
	if len(answer.Errors) > 0 {
		return fmt.Errorf("%w: start the run: %s", tracker.ErrGivenUp, clip(answer.Errors[0].Message))
	}
	if answer.Data.UpsertBucket == nil {
		return errors.New("start the run: the service's answer does not name a run")
	}
	bucket := answer.Data.UpsertBucket.Bucket
	path := []string{bucket.Project.Entity.Name, bucket.Project.Name, bucket.Name}
	for i, part := range path {
		if path[i] = url.PathEscape(part); part == "" || part == "." || part == ".." {
			return fmt.Errorf("start the run: the service returned the invalid run path %q", strings.Join(path, "/"))
		}
	}
	o.at = o.service.URL + "/files/" + strings.Join(path, "/") + "/file_stream"
	return nil
}

// chunk is a range of lines of a file.
type chunk struct {
	Offset  int      `json:"offset"`
	Content []string `json:"content"`
}

// Write implements tracker.Sink.
func (o *online) Write(ctx context.Context, rows []metrics.Row) error {
	if o.at == "" {
		if err := o.begin(ctx); err != nil {
			return err
		}
	}
	lines := make([]string, len(rows))
	for i, row := range rows {
		line, err := tracker.JSON(row, map[string]any{"_runtime": row.Time.Sub(o.begun).Seconds()})
		if err == nil {
			err = json.Unmarshal(line, &o.last) // the summary has the newest value of each metric
		}
		if err != nil {
			return fmt.Errorf("%w: %w", tracker.ErrGivenUp, err)
		}
		lines[i] = string(line)
	}
	summary, err := json.Marshal(o.last)
	if err != nil {
		return fmt.Errorf("%w: %w", tracker.ErrGivenUp, err)
	}
	files := map[string]chunk{
		"wandb-history.jsonl": {o.sent, lines},
		"wandb-summary.json":  {0, []string{string(summary)}},
	}
	if err := o.post(ctx, o.at, map[string]any{"files": files, "dropped": 0}, nil); err != nil {
		return err
	}
	o.sent += len(rows)
	return nil
}

// Close implements tracker.Sink. It reports the end of the run.
func (o *online) Close(ctx context.Context) error {
	defer o.client.CloseIdleConnections()
	if o.at == "" {
		return nil
	}
	return o.post(ctx, o.at, map[string]any{"complete": true, "exitcode": 0, "dropped": 0}, nil)
}

// post sends an object and decodes the answer.
func (o *online) post(ctx context.Context, address string, body, into any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("%w: %w", tracker.ErrGivenUp, err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("%w: %w", tracker.ErrGivenUp, err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "psyche")
	request.SetBasicAuth("api", o.service.Key)
	response, err := o.client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	switch status := response.StatusCode; {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return fmt.Errorf("%w: answer %s; check WANDB_API_KEY", tracker.ErrGivenUp, response.Status)
	case status == http.StatusRequestTimeout, status == http.StatusTooManyRequests:
		return fmt.Errorf("answer %s", response.Status)
	case status >= 400 && status < 500:
		return fmt.Errorf("%w: answer %s", tracker.ErrGivenUp, response.Status)
	case status != http.StatusOK:
		return fmt.Errorf("answer %s", response.Status)
	}
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxResponse))
	if err == nil && into != nil {
		if err = json.Unmarshal(answer, into); err != nil {
			err = fmt.Errorf("unexpected answer: %w", err)
		}
	}
	return err
}

// clip shortens untrusted text for the log.
func clip(text string) string {
	const most = 200
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
