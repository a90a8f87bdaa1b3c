//! Names are changed in place, and nothing else is.

use super::*;

const FILE: &str = "\
# A shop.
apiVersion: apps/v1   # as ever
kind: Deployment
metadata: {name: web}
spec:
  template:
    spec:
      containers:
      - image:   'web:1'
        envFrom:
        - configMapRef: {name: \"app\"} # quoted
        - configMapRef:
            name: app
---

# Another.
{\"apiVersion\": \"v1\", \"kind\": \"List\", \"items\": [
  {\"apiVersion\": \"v1\", \"kind\": \"ConfigMap\", \"metadata\": {\"name\": \"app\"}}]}
---
# Nothing here.
";

fn edit<'a>(object: &'a Object, index: usize, to: &str) -> Edit<'a> {
    let pointer = format!("/spec/template/spec/containers/0/envFrom/{index}/configMapRef/name");
    Edit { object, pointer, from: "app".into(), to: to.into() }
}

#[test]
fn only_the_names_change() {
    let file = File::parse("f", FILE).expect("YAML");
    let kinds: Vec<_> = file.objects.iter().map(|object| object.text("/kind")).collect();
    assert_eq!(kinds, ["Deployment", "ConfigMap"]);
    let edits = [edit(&file.objects[0], 0, "app-1"), edit(&file.objects[0], 1, "app-1")];
    let text = file.edited(&edits, &[]).expect("edited");
    let expected =
        FILE.replace("{name: \"app\"} # q", "{name: \"app-1\"} # q").replace("    name: app\n", "    name: app-1\n");
    assert_eq!(text, expected);
    assert_eq!(file.edited(&[], &[]).expect("nothing to do"), FILE);
}

#[test]
fn documents_are_put_in_after_those_that_they_belong_to() {
    let file = File::parse("f", FILE).expect("YAML");
    let text = file.edited(&[], &[(&file.objects[1], "kind: Copy\n".into())]).expect("edited");
    assert_eq!(text, FILE.replace("}]}\n", "}]}\n---\nkind: Copy\n"));
    let one = File::parse("f", "kind: A").expect("YAML");
    let text = one.edited(&[], &[(&one.objects[0], "kind: B\n".into())]).expect("edited");
    assert_eq!(text, "kind: A\n---\nkind: B\n");
}

#[test]
fn a_name_that_another_value_shares_is_not_changed() {
    for yaml in ["a: &n app\nb: *n\n", "x: &m {a: app}\nb: {<<: *m}\n", "a: |-\n  app\n"] {
        let file = File::parse("f", yaml).expect("YAML");
        let pointer = if yaml.contains("<<") { "/b/a" } else { "/a" };
        let edit = Edit { object: &file.objects[0], pointer: pointer.into(), from: "app".into(), to: "app-1".into() };
        assert!(matches!(file.edited(&[edit], &[]), Err(Error::NotInPlace { .. })), "{yaml}");
    }
}

#[test]
fn an_alias_is_written_out() {
    let file = File::parse("f", "a: &n app\nb: *n\n").expect("YAML");
    let edit = Edit { object: &file.objects[0], pointer: "/b".into(), from: "app".into(), to: "app-1".into() };
    assert!(file.edited(&[edit], &[]).is_err(), "the alias token is not the name, so that it is refused too");
}

#[test]
fn what_could_be_a_number_is_quoted() {
    let file = File::parse("f", "a: 1e\n").expect("YAML");
    let edit = Edit { object: &file.objects[0], pointer: "/a".into(), from: "1e".into(), to: "1e-1234567890".into() };
    assert_eq!(file.edited(&[edit], &[]).expect("edited"), "a: \"1e-1234567890\"\n");
}

#[test]
fn errors_tell_where_and_quote_no_content() {
    let told = File::parse("f.yaml", "a: 1\n---\nb: [\n").expect_err("no YAML").to_string();
    assert!(told.starts_with("failed to read f.yaml: "), "{told}");
    let file =
        File::parse("f", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: 4711}\n").expect("YAML");
    let told = file.configmaps().expect_err("a number").to_string();
    assert!(told.contains("ConfigMap a in f") && !told.contains("4711"), "{told}");
}

#[test]
fn texts_are_read_as_yaml_says() {
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  clip: |\n    a\n    b\n  strip: |-\n    a\n  fold: >\n    a\n    b\n  quoted: \"a\\tb\"\n";
    let file = File::parse("f", yaml).expect("YAML");
    let (_, configmap) = file.configmaps().expect("a ConfigMap").remove(0);
    let data = configmap.data.expect("data");
    let values: Vec<_> = ["clip", "strip", "fold", "quoted"].iter().map(|key| data[*key].as_str()).collect();
    assert_eq!(values, ["a\nb\n", "a", "a b\n", "a\tb"]);
}

#[test]
fn keys_that_kubectl_reads_otherwise_are_refused() {
    for key in ["on", "Yes", "n", "True", "0x10", "1e3", "1.0", "010", "1_000"] {
        let told = File::parse("f", &format!("data:\n  {key}: x\n")).expect_err(key).to_string();
        assert!(told.contains(&format!("quote the key {key} in line 2")), "{told}");
        File::parse("f", &format!("data:\n  \"{key}\": x\n")).expect("a text");
    }
    for key in ["true", "1", "a.b", "1.2.3", "one", "..."] {
        File::parse("f", &format!("data: {{{key}: x}}\n")).expect(key);
    }
}
