package templates

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"text/template/parse"
)

const (
	// maxText bounds the template text of one part, maxOutput its result.
	maxText   = 256 << 10
	maxOutput = 1 << 20
	// maxSteps bounds the iterations of all loops of a policy, and the branches that it takes, together.
	maxSteps = 10_000
	// maxProblem bounds the text of a problem.
	maxProblem = 1 << 10

	stepFunction, outputFunction = "opgateStep", "opgateOutput"
)

// limitError is an error of our own functions, which the template library wraps with its position. The text
// is reported without that.
type limitError string

func (e limitError) Error() string { return string(e) }

func limitErrorf(format string, args ...any) error { return limitError(fmt.Sprintf(format, args...)) }

// refused are the functions whose result depends on the replica or the time, so that two replicas would judge the same
// write differently; getHostByName, which queries servers of the author's choice; and those that make long text
// or lists of little, which no field of a policy needs.
var refused = []string{
	"now", "ago", "shuffle", "uuidv4", "getHostByName",
	"randAlpha", "randAlphaNum", "randAscii", "randNumeric", "randInt", "randBytes",
	"bcrypt", "htpasswd", "derivePassword", "encryptAES",
	"genPrivateKey", "genCA", "genCAWithKey", "genSelfSignedCert", "genSelfSignedCertWithKey", "genSignedCert",
	"genSignedCertWithKey",
	"autoindent", "indent", "nindent", "wrapWith", "seq", "untilStep",
}

// limits bound one resolution of a policy.
type limits struct {
	ctx context.Context // the library passes no context to functions of templates
	// steps are the loops and branches that ran; output, produced and found are bytes that were written, made by functions and
	// looked up.
	steps, output, produced, found int
	// anchor and alias report whether the output has what YAML would take for one.
	anchor, alias bool
}

// step is inserted at the beginning of the body of every loop and branch, with the bytes of text in that.
func (l *limits) step(text int) (string, error) {
	if l.steps++; l.steps > maxSteps {
		return "", limitErrorf("its loops and branches run more than %d times", maxSteps)
	}
	return "", cmp.Or(l.inTime(), l.write(text))
}

// inTime fails when the time of the resolution is up.
func (l *limits) inTime() error {
	if l.ctx.Err() != nil {
		return limitErrorf("it takes longer than %s", maxTime)
	}
	return nil
}

// write counts bytes of the output.
func (l *limits) write(size int) error {
	if l.output += min(size, maxOutput+1); l.output > maxOutput {
		return limitErrorf("it resolves to more than 1 MiB")
	}
	return nil
}

// out is inserted at the end of every action that writes to the output.
func (l *limits) out(value any) (any, error) {
	if value == nil {
		return nil, limitErrorf("a value that it asks for is not there; where that is meant, pipe it to default")
	}
	text, ok := value.(string)
	if !ok {
		if measure(value, maxOutput) > maxOutput {
			return nil, limitErrorf("it resolves to more than 1 MiB, or to what is nested too deep")
		}
		text = fmt.Sprint(value) // as it will be printed
	}
	return value, cmp.Or(l.written(text), l.write(len(text)))
}

// written refuses output that has both an anchor and an alias: the library reads it as YAML, also without the quotes
// that the policy has, and a few aliases are a large document.
func (l *limits) written(text string) error {
	l.anchor, l.alias = l.anchor || anchor.MatchString(text), l.alias || alias.MatchString(text)
	if l.anchor && l.alias {
		return limitErrorf("it resolves to text with words that begin with & and *, which could be anchors and aliases of YAML")
	}
	return nil
}

// bounded inserts calls into template text that count its loops and its output: nothing else ends a template, and
// {{ range 1000000000 }} calls no function.
func (l *limits) bounded(text string) (string, error) {
	if len(text) > maxText {
		return "", fmt.Errorf("it is longer than %d KiB", maxText>>10)
	}
	tree := parse.New("policy")
	tree.Mode = parse.SkipFuncCheck
	trees := map[string]*parse.Tree{}
	if _, err := tree.Parse(text, "{{", "}}", trees); err != nil {
		return "", err
	}
	if len(trees) > 1 {
		return "", errors.New("define and block are not supported")
	}
	if _, err := l.insert(tree.Root); err != nil {
		return "", err
	}
	return tree.Root.String(), nil
}

// insert inserts the calls into a list of nodes, which is written as text afterwards, and returns the bytes of text in
// the list itself.
func (l *limits) insert(list *parse.ListNode) (text int, err error) {
	for _, node := range list.Nodes {
		switch node := node.(type) {
		case *parse.TextNode:
			text += len(node.Text)
			err = l.written(string(node.Text))
		case *parse.ActionNode:
			err = withoutMethods(node.Pipe)
			if len(node.Pipe.Decl) == 0 {
				node.Pipe.Cmds = append(node.Pipe.Cmds, &parse.CommandNode{NodeType: parse.NodeCommand,
					Args: []parse.Node{parse.NewIdentifier(outputFunction)}})
			}
		case *parse.RangeNode:
			err = l.insertBranches(&node.BranchNode)
		case *parse.IfNode:
			err = l.insertBranches(&node.BranchNode)
		case *parse.WithNode:
			err = l.insertBranches(&node.BranchNode)
		case *parse.TemplateNode:
			err = errors.New("template is not supported")
		}
		if err != nil {
			return 0, err
		}
	}
	return text, nil
}

func (l *limits) insertBranches(branch *parse.BranchNode) error {
	err := withoutMethods(branch.Pipe)
	for _, list := range []*parse.ListNode{branch.List, branch.ElseList} {
		if list == nil || err != nil {
			continue
		}
		var text int
		text, err = l.insert(list)
		list.Nodes = slices.Insert(list.Nodes, 0, parse.Node(&parse.TextNode{NodeType: parse.NodeText,
			Text: fmt.Appendf(nil, "{{%s %d}}", stepFunction, text)}))
	}
	return err
}

// withoutMethods fails if a pipeline passes arguments to a method, such as Format of a time: functions count what they
// make, and methods do not.
func withoutMethods(node parse.Node) error {
	switch node := node.(type) {
	case *parse.PipeNode:
		for i, c := range node.Cmds {
			if _, function := c.Args[0].(*parse.IdentifierNode); !function && (i > 0 || len(c.Args) > 1) {
				return fmt.Errorf("%s is no function: methods with arguments are not supported", c.Args[0])
			}
			for _, arg := range c.Args {
				if err := withoutMethods(arg); err != nil {
					return err
				}
			}
		}
	case *parse.ChainNode:
		return withoutMethods(node.Node)
	}
	return nil
}
