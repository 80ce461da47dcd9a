package house

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// commit is how a workflow names an action: a tag can be moved, and what it then names runs with our tokens.
var commit = regexp.MustCompile(`^[\w-]+/[\w-]+@[0-9a-f]{40}$`)

// TestWorkflowsRunWhatWasReviewedAndWriteOnlyToPublish reads the workflows.
func TestWorkflowsRunWhatWasReviewedAndWriteOnlyToPublish(t *testing.T) {
	writing, steps := []string{}, 0
	for _, file := range find(t, ".github/workflows", ".yaml") {
		var workflow struct {
			Permissions map[string]string
			Jobs        map[string]struct {
				Permissions map[string]string
				Env         map[string]string
				Needs       []string
				Steps       []struct {
					Uses string
					With map[string]any
				}
			}
		}
		text := read(t, file)
		if err := yaml.Unmarshal([]byte(text), &workflow); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if slices.Contains(slices.Collect(maps.Values(workflow.Permissions)), "write") || strings.Count(text, "@v") > 0 {
			t.Errorf("%s: all its jobs may write, or an action has no commit", file)
		}
		for name, job := range workflow.Jobs {
			writes := slices.Contains(slices.Collect(maps.Values(job.Permissions)), "write")
			if writes {
				writing = append(writing, name)
				if !slices.Contains(job.Needs, "check") {
					t.Errorf("%s: job %s publishes what was not checked", file, name)
				}
			}
			for variable := range job.Env {
				if strings.Contains(variable, "TOKEN") {
					t.Errorf("%s: every step of job %s has %s", file, name, variable)
				}
			}
			for _, step := range job.Steps {
				if step.Uses == "" {
					continue
				}
				steps++
				if !commit.MatchString(step.Uses) {
					t.Errorf("%s: %s is no commit", file, step.Uses)
				}
				if strings.HasPrefix(step.Uses, "actions/checkout@") && step.With["persist-credentials"] != false && writes {
					t.Errorf("%s: the checkout of job %s keeps the token where every step finds it", file, name)
				}
			}
		}
	}
	if want := []string{"publish"}; !slices.Equal(writing, want) || steps < 15 {
		t.Errorf("jobs %q of all workflows may write, want %q; %d steps are actions", writing, want, steps)
	}
}
