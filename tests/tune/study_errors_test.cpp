#include <sys/resource.h>

#include <csignal>
#include <limits>

#include "hfta/base/error.h"
#include "hfta/tune/sqlite.h"
#include "hfta/tune/study.h"
#include "study_support.h"

namespace hfta::tune {
namespace study_errors_test {

class StudyErrorsTest : public StudyFolder {
 protected:
  std::string quoted(const std::string& name = "s.db") const { return base::message('"', path(name), '"'); }
};

Parameters parameters() { return {{"lr", uniform(0, 1), 0.5}}; }

std::string running_of(const std::string& state) { return "tune::Study: expected trial 0 to be RUNNING, got " + state; }

TEST_F(StudyErrorsTest, AFileThatIsNotThereIsNotMade) {
  EXPECT_EQ(message_of<InvalidArgument>([&] { Study::open(path()); }), "tune::Study: expected a study, got " + quoted() + ", which does not exist");
  EXPECT_EQ(message_of<InvalidArgument>([&] { Study::read(path()); }), "tune::Study: expected a study, got " + quoted() + ", which does not exist");
  EXPECT_FALSE(std::filesystem::exists(path()));
  EXPECT_EQ(message_of<InvalidArgument>([&] { Study::open(path("")); }), "tune::Study: expected a study, got " + quoted("") + ", which is a folder");
}

TEST_F(StudyErrorsTest, AnUnwritableFolderIsSaid) {
  EXPECT_EQ(message_of<Error>([] { Study::create("/proc/study.db"); }), "tune::Study: expected a file that can be opened, got \"/proc/study.db\" (No such file or directory)");
  EXPECT_EQ(message_of<Error>([&] { Study::create(path("none/s.db")); }), "tune::Study: expected a file that can be opened, got " + quoted("none/s.db") + " (No such file or directory)");
  EXPECT_EQ(message_of<Error>([] { StudyLock lock("/proc/study.db"); }),
            "tune::StudyLock: expected a file that can be written, got \"/proc/study.db.lock\" (No such file or directory)");
}

// As a user to whom this folder is closed, which root never is.
class ClosedFolderTest : public StudyErrorsTest {
 protected:
  std::string as_other_user(const std::function<void()>& work) {
    using std::filesystem::perms;
    const auto all_may_read = perms::owner_read | perms::owner_exec | perms::group_read | perms::group_exec | perms::others_read | perms::others_exec;
    std::filesystem::permissions(path(""), all_may_read);
    const auto words = Child([&]() -> std::string {
                         if (geteuid() == 0 && setuid(65534) != 0) return "cannot become another user";
                         work();
                         return "done";
                       }).wait();
    std::filesystem::permissions(path(""), perms::owner_all);
    return words;
  }
};

TEST_F(ClosedFolderTest, TakesNoStudy) {
  EXPECT_EQ(as_other_user([&] { Study::create(path()); }), "tune::Study: expected a file that can be opened, got " + quoted() + " (Permission denied)");
  EXPECT_EQ(as_other_user([&] { StudyLock lock(path()); }),
            "tune::StudyLock: expected a file that can be written, got " + quoted("s.db.lock") + " (Permission denied)");
}

TEST_F(ClosedFolderTest, GivesItsStudyToRead) {
  const auto odd = path("50%?#.db");
  Study::create(odd).add(parameters());
  using std::filesystem::perms;
  std::filesystem::permissions(odd, perms::owner_read | perms::group_read | perms::others_read);
  EXPECT_EQ(as_other_user([&] { HFTA_CHECK(Study::read(odd).trials().size() == 1, "not read"); }), "done");
  EXPECT_EQ(as_other_user([&] { Study::open(odd); }), "tune::Study: expected a file that can be written, got " + quoted("50%?#.db"));
}

TEST_F(StudyErrorsTest, AFileThatIsNoDatabaseIsLeftAsItIs) {
  std::ofstream(path()) << "epoch,loss\n" << std::string(5000, '1');
  const auto text = "tune::Study: expected an Optuna study, got " + quoted() + ", which is no SQLite file";
  EXPECT_EQ(message_of<Error>([&] { Study::create(path()); }), text);
  EXPECT_EQ(message_of<Error>([&] { Study::open(path()); }), text);
  EXPECT_EQ(std::filesystem::file_size(path()), 5011U);
}

TEST_F(StudyErrorsTest, ADatabaseOfSomethingElseIsLeftAsItIs) {
  {
    Database other(path(), Access::Create, std::chrono::seconds(1));
    other.run("CREATE TABLE songs (name TEXT)");
  }
  const auto text = "tune::Study: expected an Optuna study, got " + quoted() + ", which has other tables";
  EXPECT_EQ(message_of<Error>([&] { Study::create(path()); }), text);
  EXPECT_EQ(message_of<Error>([&] { Study::read(path()); }), text);
}

TEST_F(StudyErrorsTest, AFileWithoutAnythingInItIsNoStudyYet) {
  { Database empty(path(), Access::Create, std::chrono::seconds(1)); }
  const auto text = "tune::Study: expected an Optuna study, got " + quoted() + ", which is empty";
  EXPECT_EQ(message_of<Error>([&] { Study::read(path()); }), text);
  EXPECT_EQ(message_of<Error>([&] { Study::open(path()); }), text);
  EXPECT_TRUE(Study::create(path()).trials().empty()) << "a full disk may have left it: the same command goes on";
}

TEST_F(StudyErrorsTest, AnotherSchemaIsRefusedAndLeftAsItIs) {
  { Study::create(path()).add(parameters()); }
  const auto set = [&](const std::string& sql) { Database(path(), Access::Write, std::chrono::seconds(1)).run(sql); };
  const auto text = [&](const std::string& got) {
    return "tune::Study: expected Optuna's schema 12 (v3.2.0.a), got " + got + " in " + quoted() + "; `optuna storage upgrade --storage sqlite:///" + path() +
           "` brings an older one up";
  };
  set("UPDATE version_info SET schema_version = 11");
  EXPECT_EQ(message_of<Error>([&] { Study::create(path()); }), text("11 (v3.2.0.a)"));
  EXPECT_EQ(message_of<Error>([&] { Study::open(path()); }), text("11 (v3.2.0.a)"));
  set("UPDATE version_info SET schema_version = 12");
  set("UPDATE alembic_version SET version_num = 'v3.0.0.d'");
  EXPECT_EQ(message_of<Error>([&] { Study::open(path()); }), text("12 (v3.0.0.d)"));
  set("UPDATE alembic_version SET version_num = 'v3.2.0.a'");
  EXPECT_EQ(Study::open(path()).trials().size(), 1U);
}

TEST_F(StudyErrorsTest, NamesTheStudiesOfTheFile) {
  Study::create(path(), {.name = "a"});
  Study::create(path(), {.name = "b"});
  EXPECT_EQ(message_of<InvalidArgument>([&] { Study::open(path()); }),
            "tune::Study: expected the name of one of the studies \"a\", \"b\" in " + quoted() + ", got no name");
  EXPECT_EQ(message_of<InvalidArgument>([&] { Study::open(path(), "c"); }),
            "tune::Study: expected one of the studies \"a\", \"b\" in " + quoted() + ", got \"c\"");
}

TEST_F(StudyErrorsTest, OtherDirectionsAreRefused) {
  Study::create(path());
  EXPECT_EQ(message_of<InvalidArgument>([&] { Study::create(path(), {.directions = {Direction::Maximize}}); }),
            "tune::Study: expected MINIMIZE as in the study \"hfta\", got MAXIMIZE");
  EXPECT_EQ(message_of<InvalidArgument>([&] { Study::create(path(), {.directions = {}}); }), "tune::Study: expected at least one direction, got none");
  EXPECT_EQ(message_of<InvalidArgument>([&] { Study::create(path(), {.name = ""}); }), "tune::Study: expected a name, got an empty one");
}

TEST_F(StudyErrorsTest, WrongUseIsSaid) {
  auto study = Study::create(path());
  EXPECT_EQ(message_of<InvalidArgument>([&] { study.trial(0); }), "tune::Study: expected the number of one of 0 trials, got 0");
  study.add(parameters());
  EXPECT_EQ(message_of<InvalidArgument>([&] { study.report(3, 0, 1.0); }), "tune::Study: expected the number of one of 1 trials, got 3");
  EXPECT_EQ(message_of<InvalidArgument>([&] { study.add(parameters(), TrialState::Complete); }),
            "tune::Study: expected a new trial to be RUNNING or WAITING, got COMPLETE");
  EXPECT_EQ(message_of<InvalidArgument>([&] { study.finish(0, TrialState::Waiting); }),
            "tune::Study: expected trial 0 to end as COMPLETE, PRUNED or FAIL, got WAITING");
  EXPECT_EQ(message_of<InvalidArgument>([&] { study.finish(0, TrialState::Complete, {1, 2}); }), "tune::Study: expected 1 values of trial 0, got 2");
  EXPECT_EQ(message_of<InvalidArgument>([&] { study.set_user_attribute(0, "hfta:x", "{a}"); }),
            "tune::Study: attribute \"hfta:x\": expected JSON, got {a}");
  study.finish(0, TrialState::Complete, {1});
  EXPECT_EQ(message_of<InvalidArgument>([&] { study.report(0, 0, 1.0); }), running_of("COMPLETE"));
  EXPECT_EQ(message_of<InvalidArgument>([&] { study.finish(0, TrialState::Fail); }), running_of("COMPLETE"));
  auto two = Study::create(path("two.db"), {.directions = {Direction::Minimize, Direction::Minimize}});
  EXPECT_EQ(message_of<InvalidArgument>([&] { two.best(); }), "tune::Study: expected one direction to have a best trial, got 2");
}

TEST_F(StudyErrorsTest, ARefusedBatchOfReportsLeavesNothingBehind) {
  auto study = Study::create(path());
  study.add(parameters());
  const std::vector<Report> reports{{0, 1, 0.5}, {7, 1, 0.5}};
  EXPECT_THROW(study.report(reports), InvalidArgument);
  EXPECT_TRUE(study.trial(0).intermediate.empty());
}

TEST_F(StudyErrorsTest, AWriteThatWaitsTooLongSaysWhoHoldsTheFile) {
  auto study = Study::create(path(), {.patience = std::chrono::milliseconds(50)});
  Database other(path(), Access::Write, std::chrono::seconds(1));
  Transaction held(other, Access::Write);
  EXPECT_EQ(message_of<Error>([&] { study.add(parameters()); }),
            "tune::Study: expected to write " + quoted() + " within 50 ms, got it held by another process");
  EXPECT_TRUE(study.trials().empty());  // reading goes on meanwhile
}

TEST_F(StudyErrorsTest, AFullDatabaseSaysSo) {
  { Study::create(path()).add(parameters()); }
  Database small(path(), Access::Write, std::chrono::seconds(1));
  small.run("PRAGMA max_page_count = 1");
  const auto fill = [&] { small.run("INSERT INTO studies (study_name) VALUES (?)", std::string(400'000, 'x')); };
  EXPECT_EQ(message_of<Error>(fill), "tune::Study: expected room to write " + quoted() + ", got a full disk; what was stored before is kept");
  EXPECT_EQ(Study::open(path()).trials().size(), 1U);
}

// The file may not grow any further, as on a full disk or over a quota, in the middle of a sweep.
TEST_F(StudyErrorsTest, WhatWasStoredBeforeTheDiskWasFullIsKept) {
  {
    auto study = Study::create(path());
    for (int i = 0; i < 20; ++i) study.finish(study.add(parameters()), TrialState::Complete, {i * 1.0});
  }
  const auto size = std::filesystem::file_size(path());
  Child child([&]() -> std::string {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{size + 20'000, size + 20'000};
    setrlimit(RLIMIT_FSIZE, &limit);
    auto study = Study::open(path());
    for (int i = 0; i < 10'000; ++i) study.finish(study.add(parameters()), TrialState::Complete, {1.0});
    return "never full";
  });
  EXPECT_EQ(child.wait(), "tune::Study: expected to read and write " + quoted() + ", got \"disk I/O error\" (SQLite 778); what was stored before is kept");
  auto study = Study::open(path());
  const auto trials = study.trials();
  ASSERT_GE(trials.size(), 20U);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(trials[static_cast<std::size_t>(i)].values, std::vector{i * 1.0});
  EXPECT_EQ(study.add(parameters()), static_cast<std::int64_t>(trials.size()));
}

}  // namespace study_errors_test
}  // namespace hfta::tune
