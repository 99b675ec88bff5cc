package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/serving/openai"
)

// packaged reads a file of packaging.
func packaged(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("../packaging", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// takesArguments is an error where krait does not take arguments: its commands, their flags, the
// values of these, and how many folders.
func takesArguments(args []string) error {
	args, _ = renamed(args)
	c, rest, err := newRoot().Find(args)
	if err != nil {
		return err
	}
	if !c.HasParent() {
		return fmt.Errorf("%q is no command", args)
	}
	if err := c.ParseFlags(rest); err != nil {
		return err
	}
	if err := c.ValidateArgs(c.Flags().Args()); err != nil {
		return err
	}
	if strings.HasPrefix(c.CommandPath(), "krait serve") {
		return keyed(c)
	}
	return nil
}

// keyed is an error where a server that other machines reach is told of no keys.
func keyed(c *cobra.Command) error {
	address := c.Flag("listen").Value.String()
	if address == "" {
		address = net.JoinHostPort(c.Flag("host").Value.String(), c.Flag("port").Value.String())
	}
	at, err := net.ResolveTCPAddr("tcp", address)
	if err == nil && isOpen(at) && !c.Flags().Changed("api-keys") && !c.Flags().Changed("token-file") {
		return fmt.Errorf("it listens at %s without keys", at)
	}
	return err
}

// TestTakesArguments: what the tests below hold arguments against refuses what is wrong.
func TestTakesArguments(t *testing.T) {
	for _, wrong := range []string{"", "serves", "serve --listens=:80", "serve --drain=soon", "serve --slots", "serve a b", "serve --listen=0.0.0.0:80", "serve prefill --api-keys=k"} {
		if takesArguments(strings.Fields(wrong)) == nil {
			t.Errorf("krait %s is taken", wrong)
		}
	}
}

// TestDockerfile: the image is one static program that an unprivileged user runs, and is told
// what it understands.
func TestDockerfile(t *testing.T) {
	type line struct{ what, rest string }
	var stages [][]line
	for _, text := range strings.Split(strings.ReplaceAll(packaged(t, "Dockerfile"), "\\\n", " "), "\n") {
		if text = strings.TrimSpace(text); text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		what, rest, _ := strings.Cut(text, " ")
		if !slices.Contains([]string{"FROM", "WORKDIR", "COPY", "RUN", "USER", "EXPOSE", "ENTRYPOINT", "CMD"}, what) || rest == "" {
			t.Fatalf("a line is %q", text)
		}
		if what == "FROM" {
			stages = append(stages, nil)
		}
		stages[len(stages)-1] = append(stages[len(stages)-1], line{what, rest})
	}
	list := func(text string) (out []string) {
		if err := json.Unmarshal([]byte(text), &out); err != nil {
			t.Errorf("%s: %v; without a shell it must be a JSON array", text, err)
		}
		return out
	}
	if len(stages) != 2 || stages[1][0].rest != "scratch" {
		t.Fatalf("the stages are %v", stages)
	}
	mod, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(mod)[1]
	if from := stages[0][0].rest; from != fmt.Sprintf("golang:%s AS build", version) {
		t.Errorf("it is built from %s, and go.mod wants %s", from, version)
	}
	built := ""
	for _, l := range stages[0] {
		if l.what == "RUN" {
			built = l.rest
		}
	}
	for _, want := range []string{"CGO_ENABLED=0", "-tags static", "./cmd/krait", "-o /krait"} {
		if !strings.Contains(built, want) {
			t.Errorf("%s is without %s", built, want)
		}
	}
	var entry, cmd []string
	user, copied := "", false
	for _, l := range stages[1] {
		switch l.what {
		case "RUN":
			t.Errorf("there is no shell to RUN %s", l.rest)
		case "USER":
			user = l.rest
		case "ENTRYPOINT":
			entry = list(l.rest)
		case "CMD":
			cmd = list(l.rest)
		case "COPY":
			copied = copied || l.rest == "--from=build /krait /krait"
		}
	}
	if !regexp.MustCompile(`^[1-9]\d*:[1-9]\d*$`).MatchString(user) || !copied || !slices.Equal(entry, []string{"/krait"}) {
		t.Errorf("user %q runs %q", user, entry)
	}
	if err := takesArguments(cmd); err != nil {
		t.Errorf("krait %q: %v", cmd, err)
	}
}

// TestStatic: with the tag static, nothing that is linked loads libraries.
func TestStatic(t *testing.T) {
	goldens.CI(t)
	if _, err := exec.LookPath("go"); err != nil { // the test's program was taken elsewhere
		t.Skip(err)
	}
	for tags, want := range map[string]bool{"static": false, "": true} {
		c := exec.Command("go", "list", "-deps", "-tags", tags, ".")
		c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
		out, err := c.Output()
		if err != nil {
			t.Fatal(err)
		}
		if got := bytes.Contains(out, []byte("github.com/ebitengine/purego")); got != want {
			t.Errorf("with tags %q, what loads libraries is linked: %t", tags, got)
		}
	}
}

// TestUnit: systemd's unit tells krait what it understands, gives it more time than it takes to
// drain, and is right for systemd-analyze, if that is installed.
func TestUnit(t *testing.T) {
	unit := packaged(t, "krait.service")
	exe, args, _ := strings.Cut(regexp.MustCompile(`(?m)^ExecStart=(.*)$`).FindStringSubmatch(unit)[1], " ")
	if exe != "/usr/local/bin/krait" {
		t.Errorf("it runs %s", exe)
	}
	if err := takesArguments(strings.Fields(args)); err != nil {
		t.Errorf("krait %s: %v", args, err)
	}
	for _, want := range []string{"DynamicUser=yes", "NoNewPrivileges=yes", "CapabilityBoundingSet=\n", "ProtectSystem=strict", "--api-keys /etc/krait/keys", "SupplementaryGroups=krait-keys", "\nExecReload=/bin/kill -HUP $MAINPID\n"} {
		if !strings.Contains(unit, want) {
			t.Errorf("the unit is without %s", want)
		}
	}
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("there is no systemd-analyze")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "krait.service")
	if err := os.WriteFile(file, []byte(strings.Replace(unit, exe, self, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	c := exec.Command("systemd-analyze", "verify", "--man=no", file)
	c.Env = append(os.Environ(), "SYSTEMD_LOG_LEVEL=warning")
	if out, err := c.CombinedOutput(); err != nil || bytes.Contains(out, []byte("krait.service:")) {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}

// object is what manifests have, and no more: a field that is not here is a mistake.
type object struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   meta
	Resources  []string
	Data       map[string]string
	Spec       struct {
		Replicas            int
		ServiceName         string `yaml:"serviceName"`
		PodManagementPolicy string `yaml:"podManagementPolicy"`
		ClusterIP           string `yaml:"clusterIP"`
		PublishNotReady     bool   `yaml:"publishNotReadyAddresses"`
		Completions         int
		Parallelism         int
		Mode                string `yaml:"completionMode"`
		Backoff             int    `yaml:"backoffLimit"`
		Selector            any
		PodSelector         *selector `yaml:"podSelector"`
		PolicyTypes         []string  `yaml:"policyTypes"`
		Ingress             []struct {
			From []struct {
				PodSelector selector `yaml:"podSelector"`
				Namespaces  selector `yaml:"namespaceSelector"`
			}
			Ports []struct {
				Protocol string
				Port     any
			}
		}
		MaxUnavailable int `yaml:"maxUnavailable"`
		Endpoints      []struct {
			Port, Path, Interval string
		} `yaml:"podMetricsEndpoints"`
		Target struct {
			APIVersion string `yaml:"apiVersion"`
			Kind, Name string
		} `yaml:"scaleTargetRef"`
		MinReplicas int `yaml:"minReplicas"`
		MaxReplicas int `yaml:"maxReplicas"`
		Metrics     []struct {
			Type string
			Pods struct {
				Metric struct{ Name string }
				Target struct {
					Type  string
					Value string `yaml:"averageValue"`
				}
			}
		}
		Behavior map[string]any
		Ports    []struct {
			Name       string
			Port       int
			TargetPort any `yaml:"targetPort"`
		}
		Template struct {
			Metadata meta
			Spec     pod
		}
	}
}

type meta struct {
	Name   string
	Labels map[string]string
}

type selector struct {
	MatchLabels map[string]string `yaml:"matchLabels"`
}

type pod struct {
	Spread []struct {
		Skew     int      `yaml:"maxSkew"`
		Key      string   `yaml:"topologyKey"`
		When     string   `yaml:"whenUnsatisfiable"`
		Selector selector `yaml:"labelSelector"`
	} `yaml:"topologySpreadConstraints"`
	Subdomain   string
	Restart     string         `yaml:"restartPolicy"`
	Automount   *bool          `yaml:"automountServiceAccountToken"`
	Links       *bool          `yaml:"enableServiceLinks"`
	Grace       int            `yaml:"terminationGracePeriodSeconds"`
	Security    map[string]any `yaml:"securityContext"`
	Containers  []container
	Volumes     []map[string]any
	Tolerations []map[string]any
}

type container struct {
	Name, Image string
	Args        []string
	Env         []struct {
		Name string
		From struct {
			Field struct {
				Path string `yaml:"fieldPath"`
			} `yaml:"fieldRef"`
		} `yaml:"valueFrom"`
	}
	Ports     []port
	Startup   *probe `yaml:"startupProbe"`
	Readiness *probe `yaml:"readinessProbe"`
	Liveness  *probe `yaml:"livenessProbe"`
	Lifecycle struct {
		PreStop struct{ Sleep struct{ Seconds int } } `yaml:"preStop"`
	}
	Resources map[string]map[string]string
	Security  struct {
		Escalation *bool                   `yaml:"allowPrivilegeEscalation"`
		ReadOnly   bool                    `yaml:"readOnlyRootFilesystem"`
		Capability struct{ Drop []string } `yaml:"capabilities"`
	} `yaml:"securityContext"`
	Mounts []struct {
		Name      string
		MountPath string `yaml:"mountPath"`
		ReadOnly  bool   `yaml:"readOnly"`
	} `yaml:"volumeMounts"`
}

type port struct {
	Name          string
	ContainerPort int `yaml:"containerPort"`
}

type probe struct {
	HTTP *struct {
		Path string
		Port any
	} `yaml:"httpGet"`
	TCP *struct {
		Port any
	} `yaml:"tcpSocket"`
	Period   int `yaml:"periodSeconds"`
	Timeout  int `yaml:"timeoutSeconds"`
	Failures int `yaml:"failureThreshold"`
}

// TestManifests: Kubernetes' manifests have no field that is not known, what they name is there,
// what they tell krait it understands, and what they ask it it answers.
func TestManifests(t *testing.T) {
	m, err := krait.Embedded(krait.Options{Slots: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	s, err := openai.New(m, openai.Options{Keys: &openai.Keys{}})
	if err != nil {
		t.Fatal(err)
	}
	var monitor, scaler object
	files, err := filepath.Glob("../packaging/kubernetes/*.yaml")
	if err != nil || len(files) < 2 {
		t.Fatal(files, err)
	}
	var all []object
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			var pods, jobs []object
			var services, budgets []object
			d := yaml.NewDecoder(strings.NewReader(packaged(t, "kubernetes/"+filepath.Base(file))))
			d.KnownFields(true)
			for {
				var o object
				if err := d.Decode(&o); err == io.EOF {
					break
				} else if err != nil {
					t.Fatal(err)
				}
				switch o.APIVersion + " " + o.Kind {
				case "kustomize.config.k8s.io/v1beta1 Kustomization":
					for _, f := range files {
						name := filepath.Base(f)
						extra := name == "kustomization.yaml" || name == "podmonitor.yaml" || name == "autoscale.yaml" || name == "job.yaml"
						if slices.Contains(o.Resources, name) == extra {
							t.Errorf("%s is among %v: %t", name, o.Resources, !extra)
						}
					}
				case "apps/v1 Deployment", "apps/v1 StatefulSet":
					pods = append(pods, o)
				case "batch/v1 Job":
					jobs = append(jobs, o)
				case "v1 Service":
					services = append(services, o)
				case "networking.k8s.io/v1 NetworkPolicy":
					if o.Spec.PodSelector == nil || len(o.Spec.PodSelector.MatchLabels) == 0 || len(o.Spec.Ingress) == 0 {
						t.Errorf("%s lets everybody in: %+v", o.Metadata.Name, o.Spec)
					}
					for _, in := range o.Spec.Ingress { // all may reach what requires keys
						if file == "../packaging/kubernetes/job.yaml" && len(in.From) > 0 {
							continue // ranks, at any port
						}
						if len(in.Ports) != 1 || len(in.From) == 0 && in.Ports[0].Port != "http" {
							t.Errorf("%s lets everybody in: %+v", o.Metadata.Name, in)
						}
					}
				case "policy/v1 PodDisruptionBudget":
					budgets = append(budgets, o)
				case "monitoring.coreos.com/v1 PodMonitor":
					monitor = o
				case "autoscaling/v2 HorizontalPodAutoscaler":
					scaler = o
				default:
					t.Errorf("%s %s %s is not known", o.APIVersion, o.Kind, o.Metadata.Name)
				}
			}
			for _, o := range pods {
				checkPods(t, s, &o)
				checkSpread(t, &o, budgets)
			}
			for _, o := range jobs {
				checkJob(t, &o, services)
			}
			for _, o := range services {
				checkService(t, &o, slices.Concat(pods, jobs))
			}
			if len(jobs) == 0 { // jobs are neither scraped nor scaled
				all = append(append(all, pods...), services...)
			}
		})
	}
	checkAddresses(t, all)
	checkMonitor(t, all, &monitor, &scaler)
	if _, err := exec.LookPath("kubectl"); err != nil {
		t.Skip("there is no kubectl to put the manifests together")
	}
	if out, err := exec.Command("kubectl", "kustomize", "../packaging/kubernetes").CombinedOutput(); err != nil {
		t.Errorf("kubectl kustomize: %v\n%s", err, out)
	}
}

// checkPods looks at what runs.
func checkPods(t *testing.T, s http.Handler, o *object) {
	p := o.Spec.Template.Spec
	name := o.Kind + " " + o.Metadata.Name
	if p.Automount == nil || *p.Automount || p.Security["runAsNonRoot"] != true || p.Grace <= 30 {
		t.Errorf("%s: a pod is %+v", name, p)
	}
	labels, _ := o.Spec.Selector.(map[string]any)["matchLabels"].(map[string]any)
	for k, v := range labels {
		if o.Spec.Template.Metadata.Labels[k] != v {
			t.Errorf("%s: it selects %s: %v, and its pods are %v", name, k, v, o.Spec.Template.Metadata.Labels)
		}
	}
	if len(labels) == 0 || len(p.Containers) != 1 {
		t.Fatalf("%s: it selects %v, of %d containers", name, labels, len(p.Containers))
	}
	c := p.Containers[0]
	c.checkGrace(t, name, p.Grace)
	checkContainer(t, name, &p)
	if c.Startup == nil || c.Readiness == nil || c.Liveness == nil {
		t.Fatalf("%s: a probe is missing", name)
	}
	for _, p := range []*probe{c.Startup, c.Readiness, c.Liveness} {
		switch {
		case p.HTTP != nil:
			w := httptest.NewRecorder()
			if s.ServeHTTP(w, httptest.NewRequest("GET", p.HTTP.Path, nil)); w.Code != http.StatusOK || !c.has(p.HTTP.Port) {
				t.Errorf("%s: GET %s at the port %v is %d", name, p.HTTP.Path, p.HTTP.Port, w.Code)
			}
		case p.TCP == nil || !c.has(p.TCP.Port):
			t.Errorf("%s: a probe is %+v", name, p)
		}
	}
	listen := slices.IndexFunc(c.Args, func(a string) bool { return strings.HasPrefix(a, "--listen=") })
	if listen < 0 || !strings.HasSuffix(c.Args[listen], fmt.Sprintf(":%d", c.Ports[0].ContainerPort)) {
		t.Errorf("%s: krait %q, and the port is %v", name, c.Args, c.Ports)
	}
}

// checkSpread looks for what keeps some pods of a set running: constraints that spread them, a
// budget of disruptions, an image of one version.
func checkSpread(t *testing.T, o *object, budgets []object) {
	labels, _ := o.Spec.Selector.(map[string]any)["matchLabels"].(map[string]any)
	p := o.Spec.Template.Spec
	if o.Spec.Replicas > 1 && (len(p.Spread) != 1 || p.Spread[0].Skew != 1 || p.Spread[0].Key == "" || p.Spread[0].Selector.MatchLabels["app"] != labels["app"]) {
		t.Errorf("%s: the pods are spread by %+v", o.Metadata.Name, p.Spread)
	}
	if !slices.ContainsFunc(budgets, func(b object) bool {
		match, _ := b.Spec.Selector.(map[string]any)["matchLabels"].(map[string]any)
		return match["app"] == labels["app"] && b.Spec.MaxUnavailable == 1
	}) {
		t.Errorf("%s has no PodDisruptionBudget", o.Metadata.Name)
	}
	if _, tag, _ := strings.Cut(p.Containers[0].Image, ":"); !regexp.MustCompile(`^v\d+\.\d+\.\d+$`).MatchString(tag) {
		t.Errorf("%s: the image %s is of no version", o.Metadata.Name, p.Containers[0].Image)
	}
}

// checkMonitor looks whether Prometheus is told of all pods, at a port that they have, and whether
// the scaler's target and metric exist.
func checkMonitor(t *testing.T, all []object, monitor, scaler *object) {
	watched := fmt.Sprint(monitor.Spec.Selector)
	for _, o := range all {
		if o.Kind == "Service" {
			continue
		}
		app := o.Spec.Template.Metadata.Labels["app"]
		c := o.Spec.Template.Spec.Containers[0]
		if !regexp.MustCompile(`[\[ ]`+app+`[ \]]`).MatchString(watched) || len(monitor.Spec.Endpoints) != 1 || !c.has(monitor.Spec.Endpoints[0].Port) || monitor.Spec.Endpoints[0].Path != "/metrics" {
			t.Errorf("%s is not scraped by %s at %v", app, watched, monitor.Spec.Endpoints)
		}
		if !slices.Contains(c.Args, "--admin=0.0.0.0:9090") || !slices.Contains(c.Ports, port{"admin", 9090}) {
			t.Errorf("%s: krait %q has the ports %v", app, c.Args, c.Ports)
		}
	}
	if !slices.ContainsFunc(all, func(o object) bool {
		return o.Kind == scaler.Spec.Target.Kind && o.Metadata.Name == scaler.Spec.Target.Name
	}) {
		t.Errorf("nothing is %v, which is to be scaled", scaler.Spec.Target)
	}
	if m := scaler.Spec.Metrics; len(m) != 1 || !metricNames(t)[m[0].Pods.Metric.Name] || scaler.Spec.MinReplicas < 2 || scaler.Spec.MaxReplicas <= scaler.Spec.MinReplicas {
		t.Errorf("it is scaled by %+v", scaler.Spec)
	}
}

// checkGrace compares the time that a pod has to end with what its container takes: preStop,
// --drain, and 5 s in which requests are ended. In the time of preStop services stop sending to
// pods of a deployment.
func (c *container) checkGrace(t *testing.T, name string, grace int) {
	i := slices.IndexFunc(c.Args, func(a string) bool { return strings.HasPrefix(a, "--drain=") })
	if i < 0 {
		return
	}
	drain, err := time.ParseDuration(strings.TrimPrefix(c.Args[i], "--drain="))
	if err != nil {
		t.Fatal(err)
	}
	if before := c.Lifecycle.PreStop.Sleep.Seconds; strings.HasPrefix(name, "Deployment ") && before == 0 || grace <= before+int(drain.Seconds())+5 {
		t.Errorf("%s: %d s to end, of which preStop takes %d and %s", name, grace, before, c.Args[i])
	}
}

// checkAddresses looks for what --prefill and --decode name: a pod of a set by its number, in a
// service that gives these names, at its port; and servers and router have the same --prefill.
func checkAddresses(t *testing.T, all []object) {
	there := map[string]bool{}
	for _, o := range all {
		for i := range o.Spec.Replicas {
			if o.Kind == "StatefulSet" && slices.ContainsFunc(all, func(s object) bool {
				return s.Kind == "Service" && s.Metadata.Name == o.Spec.ServiceName && s.Spec.ClusterIP == "None"
			}) {
				there[fmt.Sprintf("%s-%d.%s:%d", o.Metadata.Name, i, o.Spec.ServiceName, o.Spec.Template.Spec.Containers[0].Ports[0].ContainerPort)] = true
			}
		}
	}
	prefill := map[string]bool{}
	for _, o := range all {
		if o.Kind == "Service" {
			continue
		}
		for _, a := range o.Spec.Template.Spec.Containers[0].Args {
			flag, list, _ := strings.Cut(a, "=")
			if flag != "--prefill" && flag != "--decode" {
				continue
			}
			if prefill[list] = true; flag == "--decode" {
				delete(prefill, list)
			}
			for _, address := range strings.Split(list, ",") {
				if !there[address] {
					t.Errorf("%s: %s is none of %v", o.Metadata.Name, address, there)
				}
			}
		}
	}
	if len(prefill) != 1 {
		t.Errorf("servers and router have several --prefill: %v", prefill)
	}
}

// has reports whether a container has a port of a name.
func (c *container) has(name any) bool {
	return slices.ContainsFunc(c.Ports, func(p port) bool { return p.Name == name })
}

// checkService looks for the pods of a service.
func checkService(t *testing.T, o *object, pods []object) {
	want := o.Spec.Selector.(map[string]any)
	for _, p := range pods {
		fits := true
		for k, v := range want {
			fits = fits && p.Spec.Template.Metadata.Labels[k] == v
		}
		if !fits {
			continue
		}
		for _, port := range o.Spec.Ports {
			if !p.Spec.Template.Spec.Containers[0].has(port.TargetPort) {
				t.Errorf("Service %s: there is no port %v", o.Metadata.Name, port.TargetPort)
			}
		}
		return
	}
	t.Errorf("Service %s: nothing is %v", o.Metadata.Name, want)
}
