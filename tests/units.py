"""systemd units for the tests: their lines, and the arguments that a service's program gets."""
import re
import shlex


def unit(path):
    """(section, key) to all its values."""
    values, section = {}, None
    with open(path, encoding="utf-8") as f:
        for line in map(str.strip, f):
            if line.startswith("["):
                section = line.strip("[]")
            elif line and line[0] not in "#;":
                k, v = line.split("=", 1)
                values.setdefault((section, k), []).append(v)
    return values


def arguments(values, instance, **variables):
    """Of ExecStart; variables are those of an EnvironmentFile, which count more than the unit's own."""
    env = {}
    for v in values.get(("Service", "Environment"), []):
        for assignment in shlex.split(v.replace("%i", instance)):
            name, value = assignment.split("=", 1)
            env[name] = value
    env.update(variables)
    args = []
    for word in values["Service", "ExecStart"][0].replace("%i", instance).split()[1:]:
        if re.fullmatch(r"\$[A-Z]+", word):
            args += env[word[1:]].split()
        else:
            args.append(re.sub(r"\$\{([A-Z_]+)\}", lambda m: env[m[1]], word))
    return args
