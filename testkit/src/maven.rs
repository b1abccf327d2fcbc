//! A project in Java with Maven, whose plugins come from the repository that Debian has in a directory, in the place of the one on the network.

use crate::need::Need;

pub const NEEDS: [Need; 3] = [
    Need::Installed("/usr/bin/mvn"),
    Need::Installed("/usr/share/maven-repo/org/apache/maven/plugins/maven-compiler-plugin"),
    Need::Installed("/usr/share/maven-repo/org/apache/maven/plugins/maven-resources-plugin"),
];

/// The file that says where the repository is.
pub const SETTINGS: &str = ".mvn/settings.xml";
/// In it, once everything has been fetched: what lies in the cache must do.
pub const NOWHERE: &str = "<settings/>";

/// Prints its arguments and its input, and ends with 7.
pub const PROGRAM: &[(&str, &str)] = &[
    (
        "pom.xml",
        r#"<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>demo</groupId><artifactId>demo</artifactId><version>1</version>
  <properties>
    <maven.compiler.source>11</maven.compiler.source><maven.compiler.target>11</maven.compiler.target>
    <project.build.sourceEncoding>UTF-8</project.build.sourceEncoding>
    <exec.mainClass>demo.Tell</exec.mainClass>
  </properties>
  <build><plugins>
    <plugin><groupId>org.apache.maven.plugins</groupId><artifactId>maven-resources-plugin</artifactId><version>3.3.0</version></plugin>
    <plugin><groupId>org.apache.maven.plugins</groupId><artifactId>maven-compiler-plugin</artifactId><version>3.10.1</version></plugin>
  </plugins></build>
</project>
"#,
    ),
    (".mvn/maven.config", "--settings\n.mvn/settings.xml\n"),
    (
        SETTINGS,
        "<settings><profiles><profile><id>here</id><pluginRepositories><pluginRepository><id>central</id><url>file:///usr/share/maven-repo</url></pluginRepository></pluginRepositories><repositories><repository><id>central</id><url>file:///usr/share/maven-repo</url></repository></repositories></profile></profiles><activeProfiles><activeProfile>here</activeProfile></activeProfiles></settings>",
    ),
    (
        "src/main/java/demo/Tell.java",
        "package demo;\npublic class Tell {\n  public static void main(String[] args) throws Exception {\n    String input = new String(System.in.readAllBytes());\n    System.out.println(\"java \" + String.join(\"|\", args) + \" \" + input);\n    System.exit(7);\n  }\n}\n",
    ),
];
