package cli

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// checkJob looks at a job of ranks: each has the index of its pod, and finds rank 0 by the name
// that a headless service gives its pod.
func checkJob(t *testing.T, o *object, services []object) {
	p, name := o.Spec.Template.Spec, o.Metadata.Name
	if n := o.Spec.Completions; n < 2 || o.Spec.Parallelism != n || o.Spec.Mode != "Indexed" || p.Restart != "OnFailure" || len(p.Containers) != 1 {
		t.Fatalf("job %s: %+v", name, o.Spec)
	}
	c := p.Containers[0]
	for i := range c.Args {
		if c.Args[i] == "--rank=$(RANK)" {
			c.Args[i] = "--rank=1"
		}
	}
	for _, want := range []string{"--rank=1", fmt.Sprint("--world=", o.Spec.Completions), fmt.Sprintf("--comm-id=tcp:%s-0.%s:%d", name, p.Subdomain, c.Ports[0].ContainerPort)} {
		if !slices.Contains(c.Args, want) {
			t.Errorf("job %s: krait %q is without %s", name, c.Args, want)
		}
	}
	if len(c.Env) != 1 || c.Env[0].Name != "RANK" || c.Env[0].From.Field.Path != "metadata.annotations['batch.kubernetes.io/job-completion-index']" {
		t.Errorf("job %s: %+v", name, c.Env)
	}
	if !slices.ContainsFunc(services, func(s object) bool {
		return s.Metadata.Name == p.Subdomain && s.Spec.ClusterIP == "None" && s.Spec.PublishNotReady
	}) {
		t.Errorf("job %s: no headless service is called %q", name, p.Subdomain)
	}
	checkContainer(t, "job "+name, &p)
}

// checkContainer looks at what a pod's container is told, what it may do, and at its files.
func checkContainer(t *testing.T, name string, p *pod) {
	c := p.Containers[0]
	if err := takesArguments(c.Args); err != nil {
		t.Errorf("%s: krait %q: %v", name, c.Args, err)
	}
	if c.Security.Escalation == nil || *c.Security.Escalation || !c.Security.ReadOnly || !slices.Equal(c.Security.Capability.Drop, []string{"ALL"}) {
		t.Errorf("%s: a container may %+v", name, c.Security)
	}
	volumes := map[string]bool{}
	for _, v := range p.Volumes {
		volumes[fmt.Sprint(v["name"])] = true
	}
	var paths []string
	for _, m := range c.Mounts {
		if !volumes[m.Name] || !m.ReadOnly {
			t.Errorf("%s: the volume %s of %v, to be written: %t", name, m.Name, volumes, !m.ReadOnly)
		}
		delete(volumes, m.Name)
		paths = append(paths, m.MountPath)
	}
	if len(volumes) > 0 {
		t.Errorf("%s: volumes that no container mounts: %v", name, volumes)
	}
	for _, a := range c.Args { // files lie where something is mounted
		if _, v, _ := strings.Cut(a, "="); strings.HasPrefix(a, "/") || strings.HasPrefix(v, "/") {
			file := strings.TrimPrefix(a[strings.Index(a, "/"):], "")
			if !slices.ContainsFunc(paths, func(p string) bool { return file == p || strings.HasPrefix(file, p+"/") }) {
				t.Errorf("%s: %s lies in none of %v", name, a, paths)
			}
		}
	}
}
